"""What every generator can do: learn from records, draw new ones, and be saved and loaded without pickle."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from worker.engine.conditions import Condition
from worker.engine.errors import ConfigError
from worker.engine.records import Records
from worker.engine.training import Checkpoint, Hooks

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


@dataclass(frozen=True)
class SampleRequest:
    """Which records to draw. The result is a function of (state, request)."""

    n: int
    seed: int = 0
    condition: Condition | None = None
    strength: float = 1.0  # of the guidance towards the condition, where the generator guides
    steps: int | None = None  # network calls; None is the generator's choice
    first_chunk: int = 0  # where in a larger cohort these records begin: chunk k is the same whoever draws it

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ConfigError(f"the number of records must be 0 or more, not {self.n}")
        if self.strength < 0:
            raise ConfigError(f"the guidance strength must be 0 or more, not {self.strength}")
        if self.first_chunk < 0:
            raise ConfigError(f"the first chunk must be 0 or more, not {self.first_chunk}")


@dataclass(frozen=True)
class FitRequest:
    """What to learn from and how. `settings` are the generator's own (see worker.engine.config)."""

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

    @classmethod
    @abstractmethod
    def fit(cls, request: FitRequest) -> Self:
        """Learn from records."""

    @abstractmethod
    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        """Draw records."""

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
    draw: Callable[[int, int], Records],
    progress: SampleProgress | None = None,
) -> Records:
    """Call `draw(rows, seed)` for each chunk with the chunk's own seed and join the results."""
    parts = [Records.from_sets([], n_codes)]
    for chunk, start in enumerate(range(0, request.n, CHUNK), start=request.first_chunk):
        rows = min(CHUNK, request.n - start)
        parts.append(
            draw(rows, int(np.random.SeedSequence([request.seed, chunk]).generate_state(1, np.uint64)[0] >> 1))
        )
        if progress is not None:
            progress(start + rows, request.n)
    return Records.concatenate(parts)
