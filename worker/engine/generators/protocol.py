"""What every generator can do: learn from records, draw new ones, and be saved and loaded without pickle."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ehr.conditions import Condition, Target
from ehr.errors import ConfigError
from ehr.records import Records
from worker.engine.checkpoints import Checkpoint
from worker.engine.training import Hooks

# Rows are drawn in chunks of this size, each with its own seed, so that a cohort does not depend on how its
# production is divided among calls or workers. Changing it changes every cohort.
CHUNK = 1024

# Told how many records of how many are done.
SampleProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class State:
    """A trained generator at rest: tensors for safetensors, and a config that is plain JSON."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]


@dataclass
class Weighed:
    """How many records were drawn by weight, and how many independent ones they are worth."""

    records: int = 0
    effective: float = 0.0

    def add(self, records: int, effective: float) -> None:
        self.records += records
        self.effective += effective

    def worth(self, n: int) -> float:
        """How many independent records n are worth of which these were drawn by weight: any other counts once."""
        return n - self.records + self.effective


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
    first_chunk: int = 0  # where in a larger cohort these records begin: chunk k is the same whoever draws it
    weighed: Weighed | None = field(default=None, compare=False)  # told what weights have cost, where there are any

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ConfigError(f"the number of records must be 0 or more, not {self.n}")
        if self.strength < 0:
            raise ConfigError(f"the guidance strength must be 0 or more, not {self.strength}")
        if self.first_chunk < 0:
            raise ConfigError(f"the first chunk must be 0 or more, not {self.first_chunk}")

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
        return int(np.random.SeedSequence([self.request.seed, self.number]).generate_state(1, np.uint64)[0] >> 1)

    def conditions(self) -> list[tuple[NDArray[np.int64], Condition | None]]:
        """Rows, and the condition for them: one entry for each combination of targets met and not met."""
        parts: list[tuple[NDArray[np.int64], Condition | None]] = [(np.arange(self.rows), self.request.condition)]
        for number, target in enumerate(self.request.targets):
            meets = self._meets(number, target.share)
            divided = []
            for rows, condition in parts:
                divided.append((rows[meets[rows]], target.required(condition)))
                divided.append((rows[~meets[rows]], target.excluded(condition)))
            parts = [(rows, make()) for rows, make in divided if len(rows)]
        return parts

    def _meets(self, number: int, share: float) -> NDArray[np.bool_]:
        """Which rows meet a target: its share of the whole cohort to the nearest record, anywhere in the chunk."""
        first = np.random.default_rng([self.request.seed, number]).random()
        passed = np.floor(first + share * (self.number * CHUNK + np.arange(self.rows + 1)))
        return np.random.default_rng([self.seed, number]).permutation(np.diff(passed) > 0)


@dataclass(frozen=True)
class FitRequest:
    """What to learn from and how. `settings` are the generator's own (see ehr.generators.d3pm)."""

    train: Records
    holdout: Records | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "auto"
    hooks: Hooks = field(default_factory=Hooks)
    checkpoint: Checkpoint | None = None  # resume from here


class Generator(ABC):
    """One line in GENERATORS and a class with these five members make a new generator."""

    name: ClassVar[str]
    methods: ClassVar[tuple[str, ...]] = ("exact",)  # how it can meet conditions, its own choice first

    @classmethod
    @abstractmethod
    def fit(cls, request: FitRequest) -> Self:
        """Learn from records."""

    @abstractmethod
    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        """Draw records."""

    def method_of(self, request: SampleRequest) -> str:
        """How the request's condition will be met."""
        method = self.methods[0] if request.method == "auto" else request.method
        if method not in self.methods:
            raise ConfigError(f"'{self.name}' meets conditions by {' or '.join(self.methods)}, not by '{method}'")
        return method

    def steps_of(self, request: SampleRequest) -> int | None:
        """Network calls for each record; None where there is no network."""
        return None

    @abstractmethod
    def state(self) -> State:
        """All that must be saved."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """The generator that gave this state."""


def sample_in_chunks(
    request: SampleRequest,
    n_codes: int,
    draw: Callable[[Chunk], Records],
    progress: SampleProgress | None = None,
) -> Records:
    """Call `draw` for each chunk and join the results."""
    parts = [Records.from_sets([], n_codes)]
    for number, start in enumerate(range(0, request.n, CHUNK), start=request.first_chunk):
        rows = min(CHUNK, request.n - start)
        parts.append(draw(Chunk(number, rows, request)))
        if progress is not None:
            progress(start + rows, request.n)
    return Records.concatenate(parts)
