"""What the published generators share: how they are trained, averaged, saved, and how they meet conditions.

A baseline is a network (one nn.Module that holds all its parts), a training step and a way to draw records. All the
rest is here, so that each file beside this one shows what is special about its method and nothing else.
"""

import math
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ehr.conditions import Condition
from ehr.errors import ConditionError, DataError, StateError
from ehr.generators import CHUNK
from ehr.generators.baseline import BaselineConfig
from ehr.generators.config import Config
from ehr.groups import Groups
from ehr.records import Records
from ehr.rules import Rules
from worker.engine.checkpoints import Checkpoint, flat, load_optimiser, optimiser_tensors, require_same_network
from worker.engine.generators.baselines.networks import Optimisers
from worker.engine.generators.protocol import (
    Chunk,
    FitRequest,
    Generator,
    SampleProgress,
    SampleRequest,
    State,
    sample_in_chunks,
)
from worker.engine.rules import RuleTable
from worker.engine.training import TrainingRun, precision, require_codes, resolve_device, seeded
from worker.engine.training.loop import Learner, Plan

STATE_VERSION = 1
# Rejection gives up when fewer than one in RAREST of SURE or more drawn records satisfy the condition.
RAREST, SURE = 200, 4096
FEWEST_DRAWN = 256  # at a time: a network call for fewer costs nearly as much


class Baseline(Generator):
    """A generator from the literature behind our protocol; conditions are met by throwing rows away."""

    # Beginnings of the names of weights that drawing does not need. They are not saved: a critic has seen every
    # training record, and would tell whoever has the model who was among them.
    training_only: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: Any, n_codes: int, seed: int = 0) -> None:
        self.settings, self.n_codes = settings, n_codes
        self.device = torch.device("cpu")
        self.curve: list[dict[str, float]] = []
        self.keep_to(None, None, np.zeros(n_codes))
        with seeded(seed):
            self.network = self.build()

    def keep_to(self, groups: Groups | None, rules: Rules | None, shares: NDArray[np.float64]) -> None:
        """What no record may break, and how common codes (N,) are in training records."""
        self.groups, self.shares = groups or Groups(self.n_codes), shares
        self.rules = rules or Rules(self.groups)
        self.rule_table = RuleTable(self.rules)

    # --- what each baseline says ---

    @abstractmethod
    def build(self) -> nn.Module:
        """All networks of the method as one module; weights come from torch's global generator."""

    @abstractmethod
    def optimisers(self) -> Optimisers:
        """The optimisers over parameters of `self.network`."""

    @abstractmethod
    def train_step(self, x: Tensor, optimisers: Optimisers, step: int, total: int, generator: torch.Generator) -> float:
        """One step on the records x (B, N) float of 0 and 1; its loss."""

    @abstractmethod
    def draw(self, rows: int, generator: torch.Generator, steps: int | None) -> Tensor:
        """New records, (rows, N) of 0 and 1, any dtype. The network is in evaluation mode, without gradients."""

    def prepare(self, train: Records) -> None:
        """Take statistics of the training records into buffers of the network, where a method needs them."""

    @classmethod
    def settings_of(cls, values: Config | dict[str, Any]) -> BaselineConfig:
        """The method's own settings."""
        assert cls.spec.settings is not None and issubclass(cls.spec.settings, BaselineConfig)
        return cls.spec.settings.of(values)

    # --- training ---

    @classmethod
    def fit(cls, request: FitRequest) -> Self:
        settings = cls.settings_of(request.settings)
        train = request.records
        require_codes(train)
        if len(train) == 1:
            raise DataError(f"'{cls.spec.name}' cannot learn from a single record")
        baseline = cls(settings, train.n_codes, request.seed)
        baseline.to(resolve_device(request.device))
        baseline.prepare(train)
        batch_size = min(settings.batch_size, len(train))
        plan = Plan(settings.epochs, batch_size, settings.ema_decay, settings.checkpoint_every)
        learner = _BaselineLearner(baseline)
        run = TrainingRun(learner, train, plan, request.seed, request.hooks, request.checkpoint)
        baseline.curve = run.to_the_end()
        baseline.keep_to(request.groups, request.rules, train.prevalence())
        baseline.network.eval()
        return baseline

    def to(self, device: torch.device) -> None:
        """Move the networks to a device."""
        self.device = device
        self.network.to(device)

    # --- sampling ---

    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        self.network.eval()
        self.method_of(request), self.steps_of(request), self.sampling_of(request)  # refuse what cannot be
        with torch.no_grad(), precision(self.device):
            return sample_in_chunks(request, self.n_codes, self._draw_chunk, progress)

    def _draw_chunk(self, chunk: Chunk) -> Records:
        generator = torch.Generator(self.device).manual_seed(chunk.seed)
        parts, order = [], []
        for rows, condition in chunk.conditions():
            if condition is None or condition.is_empty:
                parts.append(self._drawn(len(rows), chunk.request, generator))
            else:
                parts.append(self._meeting(condition, len(rows), chunk.request, generator))
            order.append(rows)
        return Records.concatenate(parts).take(np.argsort(np.concatenate(order)))

    def _drawn(self, rows: int, request: SampleRequest, generator: torch.Generator) -> Records:
        x = self.draw(rows, generator, request.steps).cpu().numpy()
        if len(self.groups) or len(self.rules):  # what the published method leaves to chance
            x = x.astype(np.uint8)
            seed = int(torch.randint(2**31, (1,), generator=generator, device=self.device))
            rng = np.random.default_rng(seed)
            self.groups.mend(x, self.shares, rng, None)
            x = self.rule_table.mended(x, None, self.shares, rng)
        return Records.from_dense(x)

    def _meeting(self, condition: Condition, n: int, request: SampleRequest, generator: torch.Generator) -> Records:
        """n records that satisfy the condition: draw, and throw the others away."""
        kept = [Records.from_sets([], self.n_codes)]
        found, drawn = 0, 0
        while found < n:
            if drawn >= SURE and found * RAREST < drawn:
                raise ConditionError(
                    f"'{self.spec.name}' can only throw away records that do not satisfy the condition, and of "
                    f"{drawn:,} drawn {found:,} did: it is too rare for this generator; a 'd3pm' model meets it exactly"
                )
            needed = n if found == 0 else math.ceil((n - found) * drawn / found)  # at the rate so far
            rows = min(max(needed, FEWEST_DRAWN), CHUNK)
            records = self._drawn(rows, request, generator)
            kept.append(records.take(np.flatnonzero(condition.satisfied_by(records))))
            drawn, found = drawn + rows, found + len(kept[-1])
        return Records.concatenate(kept).take(np.arange(n))

    # --- at rest ---

    def state(self) -> State:
        config: dict[str, Any] = {
            "generator": self.spec.name,
            "version": STATE_VERSION,
            "settings": self.settings.model_dump(),
            "n_codes": self.n_codes,
            "curve": self.curve,
        }
        if len(self.groups):
            config["groups"] = self.groups.as_json(range(self.n_codes))
        if len(self.rules):
            config["rules"] = self.rules.as_json()
        if len(self.groups) or len(self.rules):
            config["shares"] = self.shares.tolist()
        weights = self.network.state_dict().items()
        saved = {name: value.cpu() for name, value in weights if not name.startswith(self.training_only)}
        return State(saved, config)

    @classmethod
    def from_state(cls, state: State) -> Self:
        cls.require_own(state, STATE_VERSION)
        baseline = cls(cls.settings_of(state.config["settings"]), int(state.config["n_codes"]))
        own = baseline.network.state_dict().items()
        unsaved = {name: value for name, value in own if name.startswith(cls.training_only)}
        try:
            baseline.network.load_state_dict(unsaved | state.tensors)
        except RuntimeError as error:
            raise StateError(f"the tensors do not fit the configuration: {error}") from None
        baseline.curve = list(state.config["curve"])
        groups = Groups.from_json(state.config.get("groups", []), range(baseline.n_codes))
        rules = Rules.from_json(state.config.get("rules", {}), groups)
        baseline.keep_to(groups, rules, np.array(state.config.get("shares", baseline.shares)))
        baseline.network.eval()
        return baseline


class _BaselineLearner(Learner):
    """A baseline in training."""

    advice = ": try a lower learning_rate"

    def __init__(self, baseline: Baseline) -> None:
        self.baseline, self.device = baseline, baseline.device
        self.optimisers = baseline.optimisers()
        self.weights = {name: weight for name, weight in baseline.network.named_parameters() if weight.requires_grad}

    def step(self, batch: Records, run: TrainingRun) -> float:
        self.baseline.network.train()
        x = torch.from_numpy(batch.to_dense()).to(self.device)
        with precision(self.device), seeded(run.seed, run.step):
            return self.baseline.train_step(x, self.optimisers, run.step, run.total, run.generator)

    def end_epoch(self, epoch: int, run: TrainingRun) -> None:
        run.curve.append({"epoch": epoch, "loss": run.loss})

    def tensors(self) -> dict[str, Tensor]:
        tensors = flat("network", self.baseline.network.state_dict())
        for name, optimiser in self.optimisers.items():
            tensors |= flat(f"optimiser/{name}", optimiser_tensors(optimiser))
        return tensors

    def load(self, checkpoint: Checkpoint) -> None:
        network = checkpoint.under("network")
        require_same_network(network, self.baseline.network.state_dict())
        self.baseline.network.load_state_dict(network)
        for name, optimiser in self.optimisers.items():
            load_optimiser(optimiser, checkpoint.under(f"optimiser/{name}"))
