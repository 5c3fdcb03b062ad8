"""A cohort with the real records it is compared with, and a watch on how its measurement goes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from ehr.audits import ModelAudit
from ehr.conditions import Condition
from ehr.groups import Groups
from ehr.records import Records
from ehr.reports import Asked, AttainedTarget
from ehr.rules import Rules
from ehr.vocabulary import Vocabulary
from worker.engine.generators import Generator
from worker.engine.metrics.classifier import Label
from worker.evaluation.labels import labels_in

CUT = "; the larger side is cut to the size of the smaller one"
Watch = Callable[[str, int], None]  # (name of what is measured next, measurements done)


@dataclass(frozen=True)
class Subject:
    """A cohort and what it is compared with; all records are in the same vocabulary."""

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

    @cached_property
    def label_list(self) -> list[Label]:
        return labels_in(self.vocabulary, self.labels)

    def inside(self, records: Records) -> Records:
        """The records that satisfy the condition; all if there is none."""
        if self.condition is None:
            return records
        return records.take(np.flatnonzero(self.condition.satisfied_by(records)))


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
