"""How d3pm learns from records: its objective, and restraint about what few patients have taught."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from ehr.errors import DataError
from ehr.generators.d3pm import TrainingConfig
from ehr.records import Records
from worker.engine.checkpoints import Checkpoint
from worker.engine.contexts import Contexts
from worker.engine.denoisers import Denoiser, SparseDenoiser
from worker.engine.denoisers.few_patients import RESTRAINTS, FewPatients
from worker.engine.losses import elbo_terms, held_out_elbo
from worker.engine.noise import Noise
from worker.engine.training.calibration import expected_shares
from worker.engine.training.denoisers import DenoiserLearner
from worker.engine.training.devices import precision, seeded, training_precision
from worker.engine.training.links import LinkDescent
from worker.engine.training.loop import Plan, TrainingRun
from worker.engine.training.micro_batches import MicroBatch
from worker.engine.training.processes import Processes

CALIBRATION_ROUNDS = 3
FIDELITY_LOSS = 2.5e-3  # of the held-out ELBO, that restraint may cost at most; calibration of pairs gives some back
SIZE_SHARE = 0.3  # of a batch's records, from which the number of codes is learned


class Objective(nn.Module):
    """What a step makes smaller; one module, so that several processes see one forward call."""

    def __init__(self, denoiser: Denoiser, noise: Noise, auxiliary_weight: float) -> None:
        super().__init__()
        self.denoiser, self.noise, self.auxiliary_weight = denoiser, noise, auxiliary_weight

    def forward(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """(L_t of the records, (B,); what this micro-batch adds to the batch's loss), nats."""
        x_start, x_t, t, contexts = batch.x_start, batch.x_t, batch.t, batch.contexts
        size = x_start.sum(1)
        if contexts is None:
            logits = self.denoiser(x_t, t, size)
            l_t, objective = elbo_terms(logits, self.noise, x_start, x_t, t, self.auxiliary_weight)
            return l_t, (objective / batch.probability).mean() * batch.share
        some, rows = contexts.share(slice(batch.shown)), len(x_start)
        logits = self.denoiser(  # in one call: another would cost as much as many more records
            torch.cat([x_t, some.x_known]),
            torch.cat([t, some.times(self.noise.timesteps)]),
            torch.cat([size, some.size]),
        )
        l_t, objective = elbo_terms(logits[:rows], self.noise, x_start, x_t, t, self.auxiliary_weight)
        loss = (objective / batch.probability).mean() * batch.share
        beside = some.loss(logits[rows:]).sum() / rows * batch.share
        size_log_p = self.denoiser.size_log_probability(contexts.x_known)
        if size_log_p is not None:
            beside = beside + contexts.size_loss(size_log_p).mean() * batch.context_share
        return l_t, loss + beside


class D3PMLearner(DenoiserLearner):
    """A denoiser that learns from records."""

    def __init__(
        self,
        denoiser: Denoiser,
        noise: Noise,
        config: TrainingConfig,
        device: torch.device,
        holdout: Records | None = None,
        few_patients: FewPatients | None = None,
    ) -> None:
        """`few_patients` stand behind what is learned of single codes and pairs, where the network has such tables."""
        self.few_patients = few_patients
        self.restraint: int | None = None  # that was chosen in the end
        super().__init__(denoiser, noise, config, device)
        self.holdout, self.holds_out = holdout, holdout is not None
        links = [self.weights[name] for name in denoiser.code_tables.pairs]
        if few_patients is not None and links and config.pairwise_prior is not None:
            self.links = LinkDescent(links, few_patients.together, few_patients.patients, config.pairwise_prior)
        self.processes = Processes.current()
        rows = denoiser.rows_per_gradient(device)
        self.micro_batch = rows if config.micro_batch is None else config.micro_batch
        self.objective = self.processes.together(Objective(denoiser, self.noise, config.auxiliary_weight))

    def plan(self, records: int) -> Plan:
        """How the run is divided, with this many training records."""
        config, world = self.config, self.processes.world
        automatic = max(min(512, records // 50), 64) // world * world
        fitting = records if records < world else records // world * world
        batch_size = min(automatic if config.batch_size is None else config.batch_size, fitting)
        settle_epochs = round(config.settle_share * config.epochs)
        if batch_size % world:
            raise DataError(f"a batch of {batch_size} records cannot be shared evenly by {world} processes")
        return Plan(config.epochs, batch_size, config.ema_decay, config.checkpoint_every, settle_epochs)

    # --- a step ---

    def step(self, batch: Records, run: TrainingRun) -> float:
        self.prepare_step(run)
        x_start = torch.from_numpy(batch.to_dense(np.uint8)).to(self.device)
        t, probability = self.times.draw(len(batch), run.generator)
        x_t = self.noise.q_sample(x_start, t, run.generator)
        contexts, mine = self._draw_contexts(x_start, run.generator), self.processes.own_rows
        own = MicroBatch(
            x_start[mine],
            x_t[mine],
            t[mine],
            probability[mine],
            None if contexts is None else contexts.share(mine),
            round(self.config.context_share * len(batch) / self.processes.world),
        )
        parts, l_t = list(own.parts(self.micro_batch)), []

        def losses() -> Iterator[Tensor]:
            for number, part in enumerate(parts):
                # Processes wait for each other's gradients once a step.
                with self.processes.summing(self.objective, number == len(parts) - 1):
                    with training_precision(self.device):
                        of_records, loss = self.objective(part)
                    l_t.append(of_records.detach())
                    yield loss

        with seeded(run.seed, run.step, self.processes.rank):  # dropout draws from torch's global generator
            self.descend(losses())
        # of all processes, so that their time samplers stay the same
        drawn, terms = torch.cat([part.t for part in parts]), torch.cat(l_t)
        self.times.update(self.processes.gather(drawn), self.processes.gather(terms))
        return float((terms / torch.cat([part.probability for part in parts])).mean())

    def _draw_contexts(self, x_start: Tensor, generator: torch.Generator) -> Contexts | None:
        """Some records of the batch once more, as a condition shows them; the same number for every process."""
        if not self.noise.reveals:
            return None
        world = self.processes.world
        rows = round(max(self.config.context_share, SIZE_SHARE) * len(x_start) / world) * world
        return Contexts.draw(x_start[:rows], generator, self.noise.groups)

    # --- held-out records ---

    def _held_out(self, holdout: Records, weights: Mapping[str, Tensor], seed: int) -> float:
        """Held-out ELBO of these weights, always with the same draws, so that epochs compare."""
        sample = holdout.take(np.arange(min(len(holdout), self.config.holdout_records)))
        generator = torch.Generator(self.device).manual_seed(seed)
        with self.loaded(weights), precision(self.device):
            elbo = held_out_elbo(self.denoiser, self.noise, sample, generator, self.config.holdout_draws)
        return self.processes.agreed(elbo.value, self.device)

    def held_out(self, weights: Mapping[str, Tensor], seed: int) -> float:
        assert self.holdout is not None
        return self._held_out(self.holdout, weights, seed)

    def kept(self, weights: Mapping[str, Tensor], seed: int) -> Mapping[str, Tensor]:
        if isinstance(self.denoiser, SparseDenoiser) and self.denoiser.kin is not None:
            weights = self.denoiser.kin.taken_in(weights)
        return self.restrained(weights, seed) if self.config.restrain_rare else weights

    def restrained(self, weights: Mapping[str, Tensor], seed: int) -> Mapping[str, Tensor]:
        """The weights with what few patients have taught restrained as far as held-out records allow, and as far as
        nobody is remembered in any case."""
        few, tables = self.few_patients, self.denoiser.code_tables
        if few is None:
            return weights
        shares = self._shares(weights, few, seed)
        holdout = None if self.holdout is None or len(self.holdout) == 0 else self.holdout
        allowed = None if holdout is None else (1 + FIDELITY_LOSS) * self._held_out(holdout, weights, seed)
        for restraint in RESTRAINTS if holdout is not None else RESTRAINTS[-1:]:
            kept = self._as_common(few.applied(weights, tables, restraint), shares, few, seed)
            self.restraint = restraint
            if holdout is None or allowed is None or self._held_out(holdout, kept, seed) <= allowed:
                break
        return kept

    def _as_common(
        self, weights: dict[str, Tensor], shares: Tensor | None, few: FewPatients, seed: int
    ) -> dict[str, Tensor]:
        """The weights with shifted log-odds, so that every code has the share of records it had (N,): less certain
        of where a rare code belongs, a network would make it rarer."""
        bias = self.denoiser.code_tables.bias
        for _ in range(CALIBRATION_ROUNDS if bias in weights and shares is not None else 0):
            now = self._shares(weights, few, seed)
            assert now is not None and shares is not None
            shift = torch.log((shares + 1e-9) / (now + 1e-9)).clamp(-1, 1)
            weights[bias] = weights[bias] + torch.where(few.counts > 0, shift, 0.0).to(weights[bias].dtype)
        return weights

    def _shares(self, weights: Mapping[str, Tensor], few: FewPatients, seed: int) -> Tensor | None:
        """How common these weights make each code, (N,); None for noise that reveals nothing."""
        if not self.noise.reveals:
            return None
        with self.loaded(weights), precision(self.device):
            return expected_shares(self.denoiser, self.noise, few.some, seed, self.device)


def lean_on_kin(denoiser: Denoiser, few: FewPatients | None, checkpoint: Checkpoint | None) -> None:
    """Learn of codes together with their kin, unless a training goes on that an earlier version began without."""
    knows = checkpoint is None or any(name.startswith("kin.") for name in checkpoint.under("weights"))
    if knows and few is not None and few.families is not None and isinstance(denoiser, SparseDenoiser):
        denoiser.lean_on(few.families)
