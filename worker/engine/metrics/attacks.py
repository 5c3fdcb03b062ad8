"""What every privacy attack works on and gives: the attack, the control, blind guessing, and the gain over the control.

Members are training records, non-members holdout records; the control puts real records that the model has never seen
(the test split) in the cohort's place. Whatever an attacker learns from those, they learn about people in general and
not from the training records. So the risk is the gain over the control, never the raw score.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records
from ehr.report_needs import SMALLEST_ATTACKED
from ehr.reports import Verdict, worst
from worker.engine.metrics.intervals import random_groups
from worker.engine.metrics.measurement import CUT_TO_SIZE, Bounds, Measurement, Metric
from worker.engine.metrics.nearest import two_nearest

MAX_TARGETS = 10_000
MAX_COMPARED = 5000  # of each set whose distances to each other are compared
SCORE_BOUNDS: Bounds = (0.0, 1.0)
GAIN_BOUNDS: Bounds = (-1.0, 1.0)
# (value, the same of every draw or without each group, bounds, records used, note) -> the value with its interval
Interval = Callable[[float, NDArray[np.float64], Bounds, int, str | None], Measurement]


@dataclass(frozen=True)
class Roles:
    """One attack's four numbers."""

    attack: Measurement
    control: Measurement
    baseline: Measurement  # blind guessing
    gain: Measurement  # attack minus control

    @classmethod
    def missing(cls, reason: str) -> "Roles":
        return cls(*(Measurement(absent=reason) for _ in range(4)))

    @classmethod
    def compared(
        cls, interval: Interval, scores: Iterable[NDArray[np.float64]], baseline: Measurement, n: int, note: str | None
    ) -> "Roles":
        """`scores`: of the attack and of the control, each followed by those that `interval` makes an interval of."""
        attack, control = scores
        gain = attack - control
        return cls(
            interval(attack[0], attack[1:], SCORE_BOUNDS, n, note),
            interval(control[0], control[1:], SCORE_BOUNDS, n, None),
            baseline,
            interval(gain[0], gain[1:], GAIN_BOUNDS, n, None),
        )

    def by_name(self) -> dict[str, Measurement]:
        return {"attack": self.attack, "control": self.control, "baseline": self.baseline, "gain": self.gain}

    def noting(self, note: str | None) -> "Roles":
        """The same with a remark on all that is measured: guessing is not."""
        if note is None:
            return self
        return Roles(self.attack.noting(note), self.control.noting(note), self.baseline, self.gain.noting(note))


@dataclass(frozen=True)
class AttackResult:
    """An attack as it was run, and the same attack in other settings (`variants`)."""

    metric: "AttackMetric"
    roles: Roles
    variants: Mapping[str, Roles] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)  # numbers for the sentences and the tables

    @property
    def verdict(self) -> Verdict | None:
        """The worst of the attack and its variants."""
        ways = (self.roles, *self.variants.values())
        return worst(self.metric.verdict(roles.by_name(), self.facts) for roles in ways)


class AttackSets:
    """The records an attack works on, and what several attacks need of them."""

    def __init__(
        self, cohort: Records, train: Records, holdout: Records, control: Records, rng: np.random.Generator
    ) -> None:
        """`control`: real records in the cohort's place; neither of the model's training nor of the holdout."""
        self.train, self._rng = train, rng
        self.cohort, self.control = cohort, control
        self.members = sampled(train, MAX_TARGETS, rng)
        self.non_members = sampled(holdout, MAX_TARGETS, rng)
        self.holdout = holdout
        # compared at one size, because distances shrink as a cohort grows
        size = min(len(cohort), len(control))
        self.cohort_at_size, self.control_at_size = sampled(cohort, size, rng), sampled(control, size, rng)

    def too_small(self) -> str | None:
        """Why nothing can be attacked, or None."""
        sets = {"cohort": self.cohort, "training": self.train, "holdout": self.holdout, "test": self.control}
        for name, records in sets.items():
            if len(records) < SMALLEST_ATTACKED:
                return f"there are fewer than {SMALLEST_ATTACKED} {name} records to attack or to compare with"
        return None

    @property
    def size_note(self) -> str | None:
        if len(self.cohort_at_size) == len(self.cohort):
            return None
        return CUT_TO_SIZE  # without the number: that of a slice is a number of patients

    @cached_property
    def nearest_distances(self) -> list[list[NDArray[np.int32]]]:
        """From the cohort, then from the control, to equally many training and holdout records: the two nearest
        distances within each of their groups, (Q, G, 2), which is what leaving a group out needs."""
        n = min(len(self.train), len(self.holdout), MAX_COMPARED)
        bases = [random_groups(sampled(records, n, self._rng), self._rng) for records in (self.train, self.holdout)]
        places = [sampled(r, MAX_COMPARED, self._rng) for r in (self.cohort_at_size, self.control_at_size)]
        return [
            [np.stack([two_nearest(place, group) for group in groups], axis=1) for groups in bases] for place in places
        ]

    @property
    def targets_note(self) -> str | None:
        if max(len(self.train), len(self.holdout)) <= MAX_TARGETS:
            return None
        return f"on at most {MAX_TARGETS:,} random training patients and {MAX_TARGETS:,} others"


@dataclass(frozen=True, kw_only=True)
class AttackMetric(Metric):
    """A metric that attacks a cohort."""

    family: str = "privacy"
    direction: Literal["higher", "lower"] = "lower"
    bounds: Bounds = SCORE_BOUNDS
    measure: Callable[[AttackSets, np.random.Generator], AttackResult]


def sampled(records: Records, limit: int, rng: np.random.Generator) -> Records:
    """All records, or a random sample of `limit` of them."""
    return records if len(records) <= limit else records.take(rng.choice(len(records), limit, replace=False))


def certain(value: float, note: str | None = None) -> Measurement:
    """A number that has no noise, such as the score of blind guessing."""
    return Measurement(value, value, value, note=note)
