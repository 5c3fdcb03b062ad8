"""How a denoiser of visits learns from histories: every visit is a record with its own rate of noise."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ehr.generators.d3pm import TrainingConfig
from worker.engine.contexts import Contexts
from worker.engine.denoisers.beside import Beside
from worker.engine.histories.batch import Batch, Learnable
from worker.engine.histories.network import VisitDenoiser
from worker.engine.histories.tokens import VisitTokens
from worker.engine.losses import Elbo, TimeSampler, elbo_terms
from worker.engine.noise import HIDDEN, Noise
from worker.engine.training.denoisers import DenoiserLearner
from worker.engine.training.devices import precision, seeded
from worker.engine.training.loop import Plan, TrainingRun

VISITS_PER_STEP = 512
HELD_OUT_AT_ONCE = 256  # patients


class HistoryLearner(DenoiserLearner):
    """A denoiser of visits in training."""

    denoiser: VisitDenoiser

    def __init__(
        self,
        denoiser: VisitDenoiser,
        noise: Noise,
        tokens: VisitTokens,
        config: TrainingConfig,
        device: torch.device,
        holdout: Learnable | None = None,
    ) -> None:
        super().__init__(denoiser, noise, config, device)
        self.tokens, self.holdout = tokens, holdout
        self.holds_out = holdout is not None and len(holdout) > 0

    def plan(self, train: Learnable) -> Plan:
        """How the run is divided: a batch has as many patients as have about so many visits."""
        visits = len(train.histories.visits)
        wanted = self.config.batch_size or max(min(VISITS_PER_STEP, visits // 50), 64)
        patients = min(max(round(wanted * len(train) / visits), 1), len(train))
        settle = round(self.config.settle_share * self.config.epochs)
        return Plan(self.config.epochs, patients, self.config.ema_decay, self.config.checkpoint_every, settle)

    def step(self, batch: Learnable, run: TrainingRun) -> float:
        self.prepare_step(run)
        visits = Batch.of(batch, self.tokens, self.device)
        x_start, generator = visits.x_start, run.generator
        t, probability = self.times.draw(len(x_start), generator)
        x_t = torch.where(visits.known, x_start, self.noise.q_sample(x_start, t, generator))
        rows = max(round(self.config.context_share * len(x_start)), 1)
        contexts = Contexts.draw(x_start[:rows], generator, self.noise.groups)
        contexts = replace(contexts, x_known=torch.where(visits.known[:rows], x_start[:rows], contexts.x_known))
        with precision(self.device), seeded(run.seed, run.step):
            beside = visits.beside(self.denoiser)
            shown = beside.take(torch.arange(rows, device=self.device))
            logits = self.denoiser(  # in one call: another would cost as much as many more visits
                torch.cat([x_t, contexts.x_known]),
                torch.cat([t, contexts.times(self.noise.timesteps)]),
                torch.cat([x_start.sum(1), contexts.size]),
                beside.and_then(shown),
            )
            l_t, objective = elbo_terms(
                logits[: len(x_start)], self.noise, x_start, x_t, t, self.config.auxiliary_weight
            )
            loss = (objective / probability).mean() + contexts.loss(logits[len(x_start) :]).sum() / len(x_start)
            loss = loss + size_loss(self.denoiser, visits, beside).mean()
            sizes = self.denoiser.size_log_probability(contexts.x_known, shown)
            loss = loss if sizes is None else loss + contexts.size_loss(sizes).sum() / len(x_start)
        self.descend([loss])
        self.times.update(t, l_t)
        return float((l_t / probability).mean().detach())

    def held_out(self, weights: Mapping[str, Tensor], seed: int) -> float:
        assert self.holdout is not None
        some = self.holdout.take(np.arange(min(len(self.holdout), self.config.holdout_records)))
        generator = torch.Generator(self.device).manual_seed(seed)
        with self.loaded(weights), precision(self.device):
            elbo = visits_elbo(self.denoiser, self.noise, self.tokens, some, generator, self.config.holdout_draws)
        return elbo.value


def size_loss(denoiser: VisitDenoiser, visits: Batch, beside: Beside) -> Tensor:
    """-log p(number of tokens of a visit | what it begins with and what was before), (V,) nats."""
    x_known = torch.where(visits.known, visits.x_start, HIDDEN).to(torch.uint8)
    log_p = denoiser.size_log_probability(x_known, beside)
    if log_p is None:
        return torch.zeros(len(x_known), device=x_known.device)
    return F.cross_entropy(log_p, visits.x_start.sum(1).clamp(max=log_p.shape[1] - 1), reduction="none")


@torch.no_grad()
def visits_elbo(
    denoiser: VisitDenoiser,
    noise: Noise,
    tokens: VisitTokens,
    rows: Learnable,
    generator: torch.Generator,
    draws: int = 2,
) -> Elbo:
    """The negative ELBO of unseen histories in nats per visit; its standard error is over patients."""
    training = denoiser.training
    denoiser.eval()
    times, totals, counts = TimeSampler(noise.timesteps), [], []
    for start in range(0, len(rows), HELD_OUT_AT_ONCE):
        some = rows.take(np.arange(start, min(start + HELD_OUT_AT_ONCE, len(rows))))
        visits = Batch.of(some, tokens, generator.device)
        beside = visits.beside(denoiser)
        nats = size_loss(denoiser, visits, beside).double()
        for _ in range(draws):
            t, probability = times.draw(len(nats), generator)
            x_t = torch.where(visits.known, visits.x_start, noise.q_sample(visits.x_start, t, generator))
            logits = denoiser(x_t, t, visits.x_start.sum(1), beside)
            nats = nats + elbo_terms(logits, noise, visits.x_start, x_t, t)[0] / probability / draws
        totals.append(np.add.reduceat(nats.cpu().numpy(), some.histories.offsets[:-1]))
        counts.append(some.histories.visit_counts())
    denoiser.train(training)
    total, count = np.concatenate(totals), np.concatenate(counts)
    value = total.sum() / count.sum()
    error = np.sqrt(np.mean((total - value * count) ** 2) / len(total)) / count.mean()
    return Elbo(float(value), float(error))
