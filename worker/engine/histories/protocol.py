"""What every generator of histories can do: learn from patients over time, draw new ones, be saved and loaded."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ehr.errors import ConfigError, DataError
from ehr.generators import CHUNK, GeneratorSpec
from ehr.generators.config import Config
from ehr.groups import Groups
from ehr.histories import Histories
from ehr.history_conditions import HistoryCondition
from ehr.history_targets import HistoryTarget
from ehr.records import Records, indptr_of
from ehr.rules import Rules
from worker.engine.checkpoints import Checkpoint
from worker.engine.generators.protocol import EffectiveSize, SampleProgress, State, meeting_rows
from worker.engine.training import Hooks

# Histories, a seed and a number of noises: the loss of a visit of each patient at several rates of noise, (P, rates).
HistoryLosses = Callable[[Histories, int, int], NDArray[np.float64]]
# Histories, and codes that are known of their last visits: P(code at the last visit | that and all before), (P, N).
LastVisits = Callable[[Histories, Records], NDArray[np.float32]]


@dataclass(frozen=True)
class HistoryFit:
    """What to learn from and how; `settings` as for generators of records."""

    train: Histories
    holdout: Histories | None = None
    settings: Config | dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "auto"
    hooks: Hooks = field(default_factory=Hooks)
    checkpoint: Checkpoint | None = None  # resume from here
    visit_groups: Groups | None = None  # codes of which one holds at every visit
    static_groups: Groups | None = None  # and of every patient
    rules: Rules | None = None  # of visits with what is true of their patient

    def __post_init__(self) -> None:
        if len(self.train) == 0 or len(self.train.visits.indices) == 0:
            raise DataError("there is nothing to learn from: no patient has a visit with a code")
        if self.holdout is not None and self.holdout.n_codes != self.train.n_codes:
            raise DataError(f"training visits have {self.train.n_codes} codes, held-out ones {self.holdout.n_codes}")


@dataclass(frozen=True)
class HistoryRequest:
    """Which patients to draw. The result is a function of (state, request)."""

    n: int
    seed: int = 0
    condition: HistoryCondition | None = None  # for all patients
    targets: tuple[HistoryTarget, ...] = ()  # for a share of them each
    steps: int | None = None  # network calls for a visit; None is the generator's choice
    first_chunk: int = 0  # where in a larger cohort these patients begin: chunk k is the same whoever draws it
    effective_size: EffectiveSize | None = field(default=None, compare=False)  # told of patients drawn by weight

    def __post_init__(self) -> None:
        for name, value in {"number of patients": self.n, "first chunk": self.first_chunk}.items():
            if value < 0:
                raise ConfigError(f"the {name} must be 0 or more, not {value}")

    def conditions(self, chunk: int, rows: int) -> list[tuple[NDArray[np.int64], HistoryCondition | None]]:
        """Patients of a chunk, and the condition for them: an entry for each combination of targets met and not met."""
        condition = None if self.condition is None or self.condition.is_empty else self.condition
        parts: list[tuple[NDArray[np.int64], HistoryCondition | None]] = [(np.arange(rows), condition)]
        for number, target in enumerate(self.targets):
            meets = meeting_rows(self.seed, chunk, rows, number, target.share)
            divided = [
                (patients[chosen[patients]], make)
                for patients, base in parts
                for chosen, make in ((meets, target.required(base)), (~meets, target.excluded(base)))
            ]
            parts = [(patients, make()) for patients, make in divided if len(patients)]
        return parts


class HistoryGenerator(ABC):
    """One line in `ehr.generators.HISTORY_GENERATORS`, whose spec names this class, makes a new one."""

    spec: ClassVar[GeneratorSpec]
    device: torch.device = torch.device("cpu")

    @classmethod
    @abstractmethod
    def fit(cls, request: HistoryFit) -> Self:
        """Learn from histories."""

    @abstractmethod
    def sample(self, request: HistoryRequest, progress: SampleProgress | None = None) -> Histories:
        """Draw histories."""

    def to(self, device: torch.device) -> None:
        """Draw on this device from now on; one with a network moves it there."""
        self.device = device

    def history_losses(self) -> HistoryLosses | None:
        """How much each patient's visits surprise the model, for audits; None where a generator cannot tell."""
        return None

    def last_visits(self) -> LastVisits | None:
        """How likely codes are at a patient's last visit, for audits; None where a generator cannot tell."""
        return None

    @abstractmethod
    def state(self) -> State:
        """All that must be saved."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """The generator that gave this state."""


def join(parts: list[Histories], n_codes: int) -> Histories:
    """The patients of all parts, in order."""
    nothing = Records.from_sets([], n_codes)
    parts = [Histories(nothing, np.zeros(1, np.int64), np.zeros(0, np.int32), nothing), *parts]
    return Histories(
        Records.concatenate([part.visits for part in parts]),
        indptr_of(np.concatenate([part.visit_counts() for part in parts])),
        np.concatenate([part.gaps for part in parts]),
        Records.concatenate([part.static for part in parts]),
    )


def histories_in_chunks(
    request: HistoryRequest, n_codes: int, draw: Callable[[int, int], Histories], progress: SampleProgress | None = None
) -> Histories:
    """Call `draw(chunk, patients)` for each chunk and join the results."""
    parts = []
    for number, start in enumerate(range(0, request.n, CHUNK), start=request.first_chunk):
        rows = min(CHUNK, request.n - start)
        parts.append(draw(number, rows))
        if progress is not None:
            progress(start + rows, request.n)
    return join(parts, n_codes)
