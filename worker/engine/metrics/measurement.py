"""What a metric is and what measuring it gives: a value with its interval, or the reason why there is none."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal

import numpy as np

from ehr.records import Records

Bounds = tuple[float | None, float | None]  # None: no limit on that side
Level = Literal["good", "caution", "fail"]
Finding = Literal["good", "caution", "unsure", "fail"]  # unsure: too few records to tell, which is a caution too


CUT_TO_SIZE = "on as many random synthetic records as there are real ones to compare with"
MORE_RECORDS = "Evaluate a larger cohort, or against a data set with more patients, to find out."


@dataclass(frozen=True)
class Measurement:
    """A value with its 95 % interval, or `absent` with the reason.

    The interval says how much the value would move if both sets were drawn again at the same sizes. It does not take
    away the part of a distance that sampling noise alone makes up; for that, compare with the floor.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    absent: str | None = None
    note: str | None = None  # how it was measured, where that differs from the plain definition
    n_used: int | None = None  # records of the cohort that entered

    def __post_init__(self) -> None:
        numbers = (self.value, self.low, self.high)
        if self.absent is not None:
            if any(number is not None for number in numbers):
                raise ValueError("a measurement is either absent or has a value, not both")
        elif not all(number is not None and isfinite(number) for number in numbers):
            raise ValueError(f"a measurement without finite value and interval must say why it is absent: {numbers}")

    @classmethod
    def within(
        cls, bounds: Bounds, value: float, low: float, high: float, n_used: int | None = None, note: str | None = None
    ) -> "Measurement":
        """A measurement whose interval is cut at the metric's bounds."""
        smallest, largest = bounds
        low = low if smallest is None else max(low, smallest)
        high = high if largest is None else min(high, largest)
        return cls(float(value), float(low), float(high), note=note, n_used=n_used)

    def noting(self, note: str) -> "Measurement":
        """The same measurement with one more remark."""
        return replace(self, note=note if self.note is None else f"{self.note}; {note}")


@dataclass(frozen=True)
class Verdict:
    """What a value means for the reader: how good it is, why, and what to do about it."""

    level: Level
    reason: str
    advice: str


@dataclass(frozen=True)
class Words:
    """What a metric's levels mean to a clinician. `{names}` are filled with what the measurement knows."""

    good: str
    caution: str
    fail: str
    advice: str  # what to do when it is not good
    unsure: str = ""  # for rules that take noise into account

    def verdict(self, finding: Finding, known: Mapping[str, Any] | None = None) -> Verdict:
        """The sentence of that finding."""
        said: str = getattr(self, finding)
        advice = {"good": "", "unsure": MORE_RECORDS}.get(finding, self.advice)
        return Verdict("caution" if finding == "unsure" else finding, said.format(**known or {}), advice)


# (what was measured in each role) -> what it says; None when a measurement it needs is absent
Rule = Callable[[Mapping[str, Measurement]], Finding | None]


@dataclass(frozen=True)
class Metric:
    """What a reader must know to read a value."""

    name: str
    family: str
    direction: Literal["higher", "lower"]  # which way is better
    bounds: Bounds
    meaning: str  # one plain sentence for a clinician
    rule: Rule
    words: Words

    def verdict(self, measured: Mapping[str, Measurement], known: Mapping[str, Any] | None = None) -> Verdict | None:
        """How good the measured value is beside its yardsticks; None if that cannot be said."""
        finding = self.rule(measured)
        return None if finding is None else self.words.verdict(finding, known)


@dataclass(frozen=True)
class CohortMetric(Metric):
    """A metric that compares a cohort with real records: measure(cohort, test, train, rng)."""

    measure: Callable[[Records, Records, Records, np.random.Generator], Measurement]


@dataclass(frozen=True)
class Result:
    """A measurement beside its yardsticks, which are measured in the same way at the same sample size."""

    metric: Metric
    value: Measurement
    floor: Measurement  # real training records in place of the synthetic ones
    independent: Measurement  # codes drawn independently with the training prevalences

    @property
    def verdict(self) -> Verdict | None:
        """How good the value is; None if it is absent."""
        return self.metric.verdict({"value": self.value, "floor": self.floor, "independent": self.independent})
