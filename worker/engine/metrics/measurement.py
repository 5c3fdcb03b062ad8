"""What a metric is and what measuring it gives: a value with its interval, or the reason why there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal, TypeVar

import numpy as np

from ehr.errors import ConfigError
from ehr.records import Records
from ehr.reports import FAMILIES, Verdict

Measured = TypeVar("Measured")
Bounds = tuple[float | None, float | None]  # None: no limit on that side
Finding = Literal["good", "caution", "unsure", "fail"]  # unsure: too few records to tell, which is a caution too


CUT_TO_SIZE = "on as many random synthetic records as there are real ones to compare with"
SMALLEST_SLICE = 200  # fewer real records are no yardstick for a conditioned cohort
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
        level = "caution" if finding == "unsure" else finding
        return Verdict(level=level, reason=said.format(**known or {}), advice=advice)


# (what was measured in each role) -> what it says; None when a measurement it needs is absent
Rule = Callable[[Mapping[str, Measurement]], Finding | None]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a metric measures and how to read it."""

    name: str
    family: str
    title: str  # short name for people
    direction: Literal["higher", "lower"]  # which way is better
    bounds: Bounds
    meaning: str  # one plain sentence for a clinician
    rule: Rule
    words: Words

    def __post_init__(self) -> None:
        if self.family not in (families := [family.name for family in FAMILIES]):
            raise ConfigError(f"there is no family {self.family!r} of metrics; known: {', '.join(families)}")

    def verdict(self, measured: Mapping[str, Measurement], known: Mapping[str, Any] | None = None) -> Verdict | None:
        """How good the measured value is beside its yardsticks; None if that cannot be said."""
        finding = self.rule(measured)
        return None if finding is None else self.words.verdict(finding, known)


@dataclass(frozen=True, kw_only=True)
class CohortMetric(Metric):
    """A metric that compares a cohort with real records: measure(cohort, test, train, rng)."""

    family: str = "fidelity"
    measure: Callable[[Records, Records, Records, np.random.Generator], Measurement]


@dataclass(frozen=True, kw_only=True)
class HistoryMetric(Metric):
    """A metric that compares patients over time with real ones: measure(cohort, test, rng), and `codes` as a keyword
    where it must know what codes mean."""

    family: str = "time"
    measure: Callable[..., Measurement]
    needs_codes: bool = False


@dataclass(frozen=True, kw_only=True)
class SliceMetric(CohortMetric):
    """A metric that compares a conditioned cohort with half of the real records that satisfy the condition."""

    family: str = "conditional"
    fewest: int = SMALLEST_SLICE  # unseen real records that must satisfy it


@dataclass(frozen=True)
class Result:
    """A metric's `value` beside its yardsticks, which are measured in the same way at the same sample size."""

    metric: Metric
    measured: Mapping[str, Measurement]  # by role

    @property
    def value(self) -> Measurement:
        return self.measured["value"]

    @property
    def floor(self) -> Measurement:
        """Real training records in place of the synthetic ones."""
        return self.measured["floor"]

    @property
    def independent(self) -> Measurement:
        """Codes drawn independently with the training prevalences."""
        return self.measured["independent"]

    @property
    def verdict(self) -> Verdict | None:
        """How good the value is; None if it is absent."""
        return self.metric.verdict(self.measured)


# (name of the metric, what measures it) in the order of the report: one list gives the order, the number of
# measurements and, by position in the family's tuple, each metric's stream of random numbers
Plan = Sequence[tuple[str, Callable[[], Measured]]]
