"""A cohort with the real records it is compared with, and a watch on how its measurement goes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ehr.audits import ModelAudit
from ehr.conditions import Condition
from ehr.groups import Groups
from ehr.histories import Histories
from ehr.history_conditions import HistoryCondition
from ehr.records import Records
from ehr.reports import Asked, AskedOverTime, AttainedTarget
from ehr.rules import Rules
from ehr.vocabulary import Vocabulary
from worker.engine.generators import Generator
from worker.engine.metrics.classifier import Label
from worker.engine.metrics.time.yardsticks import all_visits
from worker.evaluation.labels import labels_in

CUT = "; the larger side is cut to the size of the smaller one"
Watch = Callable[[str, int], None]  # (name of what is measured next, measurements done)
Part = Literal["cohort", "train", "holdout", "test"]


@dataclass(frozen=True)
class OverTime:
    """The same patients with their visits in order, and what was asked of them."""

    cohort: Histories
    train: Histories
    holdout: Histories
    test: Histories
    asked: AskedOverTime | None = None
    condition: HistoryCondition | None = None

    def part(self, name: Part) -> Histories:
        found: Histories = getattr(self, name)
        return found

    def inside(self, name: Part) -> Histories:
        """The patients who satisfy the condition; all if there is none."""
        rows = self.rows_inside(name)
        return self.part(name) if rows is None else self.part(name).take(rows)

    def rows_inside(self, name: Part) -> NDArray[np.int64] | None:
        return None if self.condition is None else np.flatnonzero(self.condition.satisfied_by(self.part(name)))


@dataclass(frozen=True)
class Subject:
    """A cohort and what it is compared with; all records are in the same vocabulary. Of patients over time, a record is
    what one ever has."""

    cohort: Records
    vocabulary: Vocabulary
    train: Records
    holdout: Records
    test: Records
    ids: dict[str, str]  # job_id, cohort_id, model_id, dataset_id
    asked: Asked | None = None
    condition: Condition | None = None
    targets: Sequence[AttainedTarget] = ()
    sampling: Literal["dealt", "independent"] | None = None  # how its records were drawn; None: not known
    generator: Generator | None = None  # draws unconditional records and tells how likely a record is
    effective: float | None = None  # how many independent records it is worth, if records were drawn by weight
    own_data: bool = True  # the model learned from `train` and from nothing else
    labels: Sequence[str] | None = None  # to predict; None is the default diseases
    codes_left_out: int = 0
    attack: bool = True  # False for data whose terms forbid attacks
    groups: Groups | None = None  # codes of which one holds
    rules: Rules | None = None  # pairs of codes that no record has
    audit: ModelAudit | None = None  # of the model; None for those of earlier versions
    over_time: OverTime | None = None  # None where records are by themselves

    @cached_property
    def label_list(self) -> list[Label]:
        return labels_in(self.vocabulary, self.labels)

    @property
    def is_conditioned(self) -> bool:
        """Whether every record was asked to be something."""
        return self.condition is not None or (self.over_time is not None and self.over_time.condition is not None)

    def inside(self, name: Part) -> Records:
        """The records that satisfy the condition; all if there is none."""
        rows = self.rows_inside(name)
        return self.part(name) if rows is None else self.part(name).take(rows)

    def attacked(self, name: Part, *, in_slice: bool = False) -> Records:
        """The same as attacks see it: of patients over time, all their visits."""
        rows = self.rows_inside(name) if in_slice else None
        records = self.part(name) if self.over_time is None else all_visits(self.over_time.part(name))
        return records if rows is None else records.take(rows)

    def part(self, name: Part) -> Records:
        found: Records = getattr(self, name)
        return found

    def rows_inside(self, name: Part) -> NDArray[np.int64] | None:
        """None: all of them."""
        if self.over_time is not None and self.over_time.condition is not None:
            return self.over_time.rows_inside(name)
        return None if self.condition is None else np.flatnonzero(self.condition.satisfied_by(self.part(name)))


@dataclass
class Stopwatch:
    """What each metric took, and how many measurements are done."""

    watch: Watch
    seconds: dict[str, float] = field(default_factory=dict)
    done: int = 0
    _name: str | None = None
    _since: float = field(default_factory=time.perf_counter)

    def begin(self, name: str) -> None:
        """The measurement before this one has ended."""
        self.end()
        self._name = name
        self.watch(name, self.done)

    def end(self) -> None:
        now = time.perf_counter()
        if self._name is not None:
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._since
            self.done += 1
        self._name, self._since = None, now
