"""What every generator can do: learn from records, draw new ones, and be saved and loaded without pickle."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.conditions import Condition, Target
from ehr.errors import ConfigError, StateError
from ehr.generators import CHUNK, GeneratorSpec
from ehr.generators.config import Config
from ehr.generators.spec import AUTO
from ehr.groups import Groups
from ehr.records import Records
from ehr.rules import Rules
from ehr.streams import RecordStream
from worker.engine.checkpoints import Checkpoint
from worker.engine.conditional_prevalence import ConditionalPrevalence
from worker.engine.training import Hooks

# Told how many records of how many are done.
SampleProgress = Callable[[int, int], None]
# Records -> nats per record and their standard error: how much the records surprise a model.
LogLoss = Callable[[Records], tuple[float, float]]
# (records, seed, draws) -> nats of each record at several rates of noise, the same noise for the same seed, (R, rates).
RecordLosses = Callable[[Records, int, int], NDArray[np.float64]]


@dataclass(frozen=True)
class State:
    """A trained generator at rest: tensors for safetensors, and a config that is plain JSON."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]

    def require(self, generator: str, version: int) -> None:
        """StateError unless the state is of this kind of generator and this version of its stored form."""
        if self.config.get("generator") != generator or self.config.get("version") != version:
            raise StateError(f"this is not the state of a generator '{generator}', version {version}")


@dataclass
class EffectiveSize:
    """Of records that were drawn by weight (importance sampling): how many independent ones they are worth."""

    weighted: int = 0  # records that were drawn by weight
    effective: float = 0.0

    def add(self, weighted: int, effective: float) -> None:
        self.weighted += weighted
        self.effective += effective

    def of(self, n: int) -> float | None:
        """How many independent records n are worth: any not drawn by weight counts once. None if none was."""
        return n - self.weighted + self.effective if self.weighted else None


@dataclass(frozen=True)
class SampleRequest:
    """Which records to draw. The result is a function of (state, request)."""

    n: int
    seed: int = 0
    condition: Condition | None = None  # for all records
    targets: tuple[Target, ...] = ()  # for a share of them each
    method: str = "auto"  # how the condition is met: one of the generator's `methods`, or its own choice
    strength: float = 1.0  # of the guidance towards the condition, where the method guides
    steps: int | None = None  # network calls; None is the generator's choice
    sampling: str = AUTO  # `dealt` or `independent`, see ehr/generators/spec.py
    first_chunk: int = 0  # where in a larger cohort these records begin: chunk k is the same whoever draws it
    effective_size: EffectiveSize | None = field(default=None, compare=False)  # told of records drawn by weight

    def __post_init__(self) -> None:
        named = {"number of records": self.n, "guidance strength": self.strength, "first chunk": self.first_chunk}
        for name, value in named.items():
            if value < 0:
                raise ConfigError(f"the {name} must be 0 or more, not {value}")

    @property
    def asks_for_something(self) -> bool:
        """Whether there is anything a record must satisfy."""
        return bool(self.targets) or not (self.condition is None or self.condition.is_empty)


@dataclass(frozen=True)
class Chunk:
    """A fixed-size piece of a cohort with randomness of its own, and the conditions its records must satisfy."""

    number: int
    rows: int
    request: SampleRequest

    @property
    def seed(self) -> int:
        """Of everything that is drawn for this chunk."""
        return chunk_seed(self.request.seed, self.number)

    def conditions(self) -> list[tuple[NDArray[np.int64], Condition | None]]:
        """Rows, and the condition for them: one entry for each combination of targets met and not met."""
        parts: list[tuple[NDArray[np.int64], Condition | None]] = [(np.arange(self.rows), self.request.condition)]
        for number, target in enumerate(self.request.targets):
            meets = meeting_rows(self.request.seed, self.number, self.rows, number, target.share)
            divided = []
            for rows, condition in parts:
                divided.append((rows[meets[rows]], target.required(condition)))
                divided.append((rows[~meets[rows]], target.excluded(condition)))
            parts = [(rows, make()) for rows, make in divided if len(rows)]
        return parts


def chunk_seed(seed: int, chunk: int) -> int:
    """Of everything that is drawn for a chunk of a cohort."""
    return int(np.random.SeedSequence([seed, chunk]).generate_state(1, np.uint64)[0] >> 1)


def meeting_rows(seed: int, chunk: int, rows: int, number: int, share: float) -> NDArray[np.bool_]:
    """Which rows of a chunk meet target `number`: its share of the whole cohort to the nearest record, anywhere in the
    chunk."""
    first = np.random.default_rng([seed, number]).random()
    passed = np.floor(first + share * (chunk * CHUNK + np.arange(rows + 1)))
    return np.random.default_rng([chunk_seed(seed, chunk), number]).permutation(np.diff(passed) > 0)


@dataclass(frozen=True)
class FitRequest:
    """What to learn from and how. `settings` are the generator's own (`spec.settings`), or plain values for them."""

    train: Records | RecordStream
    holdout: Records | None = None
    settings: Config | dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "auto"
    hooks: Hooks = field(default_factory=Hooks)
    checkpoint: Checkpoint | None = None  # resume from here
    groups: Groups | None = None  # codes of which one holds; records that break one are not learned from
    rules: Rules | None = None  # pairs that no record has, over the same groups
    families: NDArray[np.int64] | None = None  # which codes are kin (ehr.codes.families)

    @property
    def records(self) -> Records:
        """All training records in memory, for whoever cannot learn from a stream of them."""
        return self.train if isinstance(self.train, Records) else Records.concatenate(list(self.train.pools()))


class Generator(ABC):
    """One line in `ehr.generators.GENERATORS`, whose spec names this class, makes a new generator."""

    spec: ClassVar[GeneratorSpec]
    device: torch.device = torch.device("cpu")

    @classmethod
    @abstractmethod
    def fit(cls, request: FitRequest) -> Self:
        """Learn from records."""

    @abstractmethod
    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        """Draw records."""

    def to(self, device: torch.device) -> None:
        """Draw and measure on this device from now on; one with a network moves it there."""
        self.device = device

    def method_of(self, request: SampleRequest) -> str:
        """How the request's condition will be met."""
        methods = self.spec.methods
        method = methods[0] if request.method == "auto" else request.method
        if method not in methods:
            raise ConfigError(f"'{self.spec.name}' meets conditions by {' or '.join(methods)}, not by '{method}'")
        return method

    def sampling_of(self, request: SampleRequest) -> str:
        """How the request's records will be drawn."""
        method = self.method_of(request) if request.asks_for_something else None
        return self.spec.sampling(request.sampling, self.settings_in_force(), method)

    def settings_in_force(self) -> Mapping[str, Any]:
        """Those on which it depends how records can be drawn."""
        return {}

    def steps_of(self, request: SampleRequest) -> int | None:
        """Network calls for each record; None where there is no network."""
        return None

    def log_loss(self) -> LogLoss | None:
        """How to tell how likely a record is; None where a generator cannot."""
        return None

    def record_losses(self) -> RecordLosses | None:
        """How much each record surprises the model, for audits; None where a generator cannot tell."""
        return None

    def conditional_prevalence(self) -> ConditionalPrevalence | None:
        """How common codes are among the records that a condition would give, for audits; None where that has to be
        found out by drawing them."""
        return None

    @abstractmethod
    def state(self) -> State:
        """All that must be saved."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """The generator that gave this state."""

    @classmethod
    def require_own(cls, state: State, version: int) -> None:
        """StateError unless the state is of this kind of generator and this version of its stored form."""
        state.require(cls.spec.name, version)


def sample_in_chunks(
    request: SampleRequest, n_codes: int, draw: Callable[[Chunk], Records], progress: SampleProgress | None = None
) -> Records:
    """Call `draw` for each chunk and join the results."""
    parts = [Records.from_sets([], n_codes)]
    for number, start in enumerate(range(0, request.n, CHUNK), start=request.first_chunk):
        rows = min(CHUNK, request.n - start)
        parts.append(draw(Chunk(number, rows, request)))
        if progress is not None:
            progress(start + rows, request.n)
    return Records.concatenate(parts)
