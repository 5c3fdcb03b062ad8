"""EHR-D3PM: discrete diffusion over medical codes, behind the generator protocol."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.conditions import Condition
from ehr.errors import ConfigError, DataError, StateError
from ehr.generators.d3pm import D3PM, D3PMConfig, LinformerConfig, SparseConfig, as_kept, as_stored
from ehr.generators.spec import DEALT
from ehr.groups import Groups
from ehr.records import Records
from ehr.rules import Rules
from ehr.streams import keeping
from worker.engine.alone import reveal_alone
from worker.engine.blocks import RAMP, Divisions, Ties, blocks_of_chunk, in_order
from worker.engine.conditional_prevalence import ConditionalPrevalence, revealed_prevalence
from worker.engine.conditioning import Starts
from worker.engine.denoisers import Denoiser, build_denoiser
from worker.engine.denoisers.few_patients import FewPatients
from worker.engine.generators.drawn_pairs import calibrate_pairs
from worker.engine.generators.narrower import is_of_lessons, narrow, with_lessons
from worker.engine.generators.protocol import (
    Chunk,
    FitRequest,
    Generator,
    LogLoss,
    RecordLosses,
    SampleProgress,
    SampleRequest,
    State,
    sample_in_chunks,
)
from worker.engine.guidance import ConditionEnergy, LangevinGuidance
from worker.engine.losses import Elbo, held_out_elbo, record_losses
from worker.engine.noise import HIDDEN, Noise, TwoStateNoise, noise_named
from worker.engine.reveal import deal_offsets, reveal_sample
from worker.engine.rules import RuleTable
from worker.engine.sampling import Denoise, ancestral_sample
from worker.engine.schedules import strided_times
from worker.engine.sizes import size_counts
from worker.engine.smc import twisted_sample
from worker.engine.training import TrainingRun, precision, require_codes, resolve_device, seeded
from worker.engine.training.d3pm import D3PMLearner, lean_on_kin

STATE_VERSION = 3
NETWORK = "denoiser/"  # how the names of the network's tensors begin
REVEAL_STEPS = 16  # network calls for each record; docs/decisions/0136 has what more of them bring
ANCESTRAL_STEPS = 64
StartsOf = dict[Condition | None, Starts]


class D3PMGenerator(Generator):
    """A noise, a denoiser and the statistics both were built from."""

    spec = D3PM

    def __init__(
        self,
        config: D3PMConfig,
        prevalence: Tensor,
        sizes: Tensor,
        seed: int = 0,
        groups: Groups | None = None,
        rules: Rules | None = None,
    ) -> None:
        """`prevalence` (N,) of the codes, `sizes` the share of training records with 0, 1, 2, ... codes."""
        self.config, self.prevalence, self.sizes = config, prevalence, sizes
        self.groups = groups or Groups(len(prevalence))
        self.rules = rules or Rules(self.groups)
        self.rule_table = RuleTable(self.rules)
        self.noise: Noise = noise_named(config.noise).create(prevalence, config.timesteps, self.groups)
        self.denoiser: Denoiser = self.network(config.kept_denoiser, seed)
        self.curve: list[dict[str, float]] = []
        self.device = torch.device("cpu")

    def network(self, denoiser: LinformerConfig | SparseConfig, seed: int) -> Denoiser:
        with seeded(seed):  # initial weights come from torch's global generator
            return build_denoiser(denoiser, self.noise, self.prevalence, self.sizes)

    # --- training ---

    @classmethod
    def prepare(cls, request: FitRequest) -> tuple[Self, TrainingRun]:
        """The untrained generator and the run that would train it."""
        config = D3PMConfig.of(request.settings)
        train, holdout = request.train, request.holdout
        require_codes(train)
        if holdout is not None and holdout.n_codes != train.n_codes:
            raise DataError(f"training records have {train.n_codes} codes, held-out records {holdout.n_codes}")
        if request.groups is not None:
            train = keeping(train, request.groups)
            holdout = None if holdout is None else request.groups.keeping(holdout)
        codes = train.sizes()
        sizes = size_counts(codes, codes) / len(codes)
        prevalence = torch.from_numpy(train.prevalence())
        generator = cls(config, prevalence, torch.from_numpy(sizes), request.seed, request.groups, request.rules)
        if config.is_narrowed:
            generator.denoiser = generator.network(config.denoiser, request.seed)
        generator.to(resolve_device(request.device))
        few = FewPatients.behind(generator.denoiser.code_tables, train, generator.device, request.families)
        lean_on_kin(generator.denoiser, few, request.checkpoint)
        learner = D3PMLearner(generator.denoiser, generator.noise, config.training, generator.device, holdout, few)
        plan, checkpoint = learner.plan(len(train)), request.checkpoint
        if config.is_narrowed:
            plan = with_lessons(plan, len(train))
            checkpoint = None if is_of_lessons(checkpoint) else checkpoint
        return generator, TrainingRun(learner, train, plan, request.seed, request.hooks, checkpoint)

    @classmethod
    def fit(cls, request: FitRequest) -> Self:
        generator, run = cls.prepare(request)
        if not is_of_lessons(request.checkpoint):
            generator.curve = run.to_the_end()
        generator.denoiser.stand_alone()
        if generator.config.is_narrowed:
            narrow(generator, run.train, run.plan, request.seed, request.hooks, request.checkpoint)
        generator.denoiser.eval()
        assert isinstance(run.learner, D3PMLearner)
        calibrate_pairs(generator, run.learner.few_patients, request.seed, request.hooks)
        return generator

    def to(self, device: torch.device) -> None:
        """Move network and noise tables to a device."""
        self.device, self.noise, self.rule_table = device, self.noise.to(device), self.rule_table.to(device)
        self.denoiser.to(device)
        self.denoiser.noise = self.noise

    def held_out_elbo(self, records: Records, seed: int = 0, draws: int = 4) -> Elbo:
        """Negative ELBO of unseen records, nats per record."""
        return held_out_elbo(self.denoiser, self.noise, records, torch.Generator(self.device).manual_seed(seed), draws)

    def log_loss(self) -> LogLoss:
        def elbo(records: Records) -> tuple[float, float]:
            return (measured := self.held_out_elbo(records)).value, measured.standard_error

        return elbo

    def record_losses(self) -> RecordLosses:
        return partial(record_losses, self.denoiser, self.noise, self.device)

    def conditional_prevalence(self) -> ConditionalPrevalence | None:
        return None if not self.noise.reveals else partial(revealed_prevalence, self.denoiser, self.device)

    # --- sampling ---

    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        self.denoiser.eval()
        self.sampling_of(request)  # refuses what cannot be
        draw: Callable[[Chunk], Tensor]
        if request.asks_for_something and self.method_of(request) == "langevin":
            if request.targets:
                raise ConfigError("targets are met by the method 'exact'; 'langevin' only makes codes more common")
            draw = self._draw_guided
        elif self.noise.reveals:
            with precision(self.device):
                ties = Ties.seen_by(self.denoiser, self.prevalence.to(self.device))
            draw = partial(self._draw_revealed, starts={}, ties=ties, found={})
        else:
            draw = self._draw_walked
        with precision(self.device):
            return sample_in_chunks(
                request, self.noise.n_codes, lambda chunk: Records.from_dense(draw(chunk).cpu().numpy()), progress
            )

    def settings_in_force(self) -> Mapping[str, Any]:
        return {"noise": self.config.noise}

    def steps_of(self, request: SampleRequest) -> int:
        """Network calls for each record."""
        default = REVEAL_STEPS if self._reveals(request) else ANCESTRAL_STEPS
        steps = min(default, self.config.timesteps) if request.steps is None else request.steps
        strided_times(self.config.timesteps, steps)  # refuses what cannot be
        return steps

    def _reveals(self, request: SampleRequest) -> bool:
        guided = request.asks_for_something and self.method_of(request) == "langevin"
        return self.noise.reveals and not guided

    def _draw_revealed(self, chunk: Chunk, starts: StartsOf, ties: Ties, found: Divisions) -> Tensor:
        """Records that satisfy their conditions, or any where there are none, by the fast sampler. `starts` keeps how
        records begin under each condition, and `found` how codes are divided, for the chunks to come."""
        generator = torch.Generator(self.device).manual_seed(chunk.seed)
        x = torch.empty(chunk.rows, self.noise.n_codes, dtype=torch.uint8, device=self.device)
        sizes = torch.empty(chunk.rows, dtype=torch.long, device=self.device)
        dealt = self.sampling_of(chunk.request) == DEALT
        conditions = self._conditions(chunk)
        for rows, condition in conditions:
            if condition not in starts:
                starts[condition] = Starts.kept_by(self.rules, self.denoiser, condition, self.device)
            x[rows], size = starts[condition].draw(len(rows), generator, spread=dealt)
            if size is not None:
                sizes[rows] = size
        # which ways to begin the records of this chunk happen to have may not matter to records drawn by themselves
        begun = x if dealt else torch.cat([starts[condition].x for _, condition in conditions])
        hidden = (begun.amax(0) == HIDDEN).nonzero().squeeze(1)  # the largest state
        size, steps = None if self.denoiser.size_log_prior is None else sizes, self.steps_of(chunk.request)
        groups = self.noise.groups if len(self.groups) else None
        rules = self.rule_table if len(self.rules) else None
        leading = () if rules is None else rules.leading

        def blocks(seed: int, number: int) -> list[Tensor]:
            return blocks_of_chunk(hidden, self.prevalence, ties, steps, seed, number, groups, leading, RAMP, found)

        if not dealt:
            return reveal_alone(self.denoiser, x, size, partial(blocks, 0), generator, groups, rules)
        place = chunk.request.seed, chunk.number
        divided = self.denoiser.arranged(blocks(*place))
        offsets = deal_offsets(self.noise.n_codes, *place).to(self.device)
        reading = self.denoiser.reading(x, size, order=in_order(self.noise.n_codes, divided))
        return reveal_sample(reading, divided, offsets, generator, groups, rules)

    def _conditions(self, chunk: Chunk) -> list[tuple[NDArray[np.int64], Condition | None]]:
        """Rows and their conditions, with all that follows from these by groups and rules."""
        return [
            (rows, condition if condition is None else self.rules.settled(condition))
            for rows, condition in chunk.conditions()
        ]

    def _draw_walked(self, chunk: Chunk) -> Tensor:
        """The same through time, for noises that do not reveal."""
        generator = torch.Generator(self.device).manual_seed(chunk.seed)
        x = torch.empty(chunk.rows, self.noise.n_codes, dtype=torch.uint8, device=self.device)
        for rows, condition in self._conditions(chunk):
            x[rows] = self._walk(len(rows), condition, chunk.request, generator)
        return x

    def _walk(
        self, rows: int, condition: Condition | None, request: SampleRequest, generator: torch.Generator
    ) -> Tensor:
        steps = self.steps_of(request)
        if condition is None or condition.is_empty:
            x = ancestral_sample(self._denoise(rows, request, generator), self.noise, rows, steps, generator)
            return self._mended(x, None, generator)
        assert isinstance(self.noise, TwoStateNoise)
        mend = partial(self._mended, condition=condition, generator=generator)
        x, effective = twisted_sample(self.denoiser, self.noise, condition, rows, steps, generator, mend)
        if request.effective_size is not None:
            request.effective_size.add(rows, effective)
        return x

    def _draw_guided(self, chunk: Chunk) -> Tensor:
        """The paper's guidance: records in which what the condition asks for is more common."""
        assert chunk.request.condition is not None
        generator = torch.Generator(self.device).manual_seed(chunk.seed)
        energy = ConditionEnergy(self.rules.settled(chunk.request.condition), self.noise.groups)
        guide = LangevinGuidance(energy, strength=chunk.request.strength)
        denoise = self._denoise(chunk.rows, chunk.request, generator)
        x = ancestral_sample(denoise, self.noise, chunk.rows, self.steps_of(chunk.request), generator, guide)
        return self._mended(x, None, generator)

    def _mended(self, x: Tensor, condition: Condition | None, generator: torch.Generator) -> Tensor:
        """Records (B, N) that break no rule: these samplers turn codes on and off until their last step."""
        return self.rule_table.mend(x, condition, self.prevalence.to(x.device), generator)

    def _denoise(self, rows: int, request: SampleRequest, generator: torch.Generator) -> Denoise:
        """The denoiser bound to sizes that are drawn for these records."""
        starts, spread = Starts.under(self.denoiser, None, self.device), self.sampling_of(request) == DEALT
        _, size = starts.draw(rows, generator, spread)
        return lambda x_t, t: self.denoiser.in_batches(x_t, t, size)

    # --- at rest ---

    def state(self) -> State:
        tensors = {f"{NETWORK}{name}": value.cpu() for name, value in self.denoiser.state_dict().items()}
        tensors |= {"prevalence": self.prevalence, "sizes": self.sizes}
        config: dict[str, Any] = {
            "generator": self.spec.name,
            "version": STATE_VERSION,
            "settings": as_kept(self.config),
            "curve": self.curve,
        }
        if len(self.groups):
            config["groups"] = self.groups.as_json(range(self.groups.n_codes))
        if len(self.rules):
            config["rules"] = self.rules.as_json()
        return State(tensors, config)

    @classmethod
    def from_state(cls, state: State) -> Self:
        cls.require_own(state, STATE_VERSION)
        prevalence = state.tensors["prevalence"]
        groups = Groups.from_json(state.config.get("groups", []), range(len(prevalence)))
        stored = as_stored(state.config["settings"], len(prevalence))
        settings = D3PMConfig(**{"drawing_width": None} | stored)  # what is stored is the network that draws
        rules = Rules.from_json(state.config.get("rules", {}), groups)
        generator = cls(settings, prevalence, state.tensors["sizes"], groups=groups, rules=rules)
        weights = {name[len(NETWORK) :]: value for name, value in state.tensors.items() if name.startswith(NETWORK)}
        try:
            generator.denoiser.load_state_dict(weights)
        except RuntimeError as error:
            raise StateError(f"the tensors do not fit the configuration: {error}") from None
        generator.curve = list(state.config["curve"])
        generator.denoiser.eval()
        return generator
