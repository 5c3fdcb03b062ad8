"""Intervals by leaving out one group of records at a time (the delete-a-group jackknife), or by drawing again.

Counts add up over records: the counts without a group are the total minus the group's. So a jackknife costs one more
evaluation per group, and no record is visited twenty times as a bootstrap would.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from ehr.records import Records
from worker.engine.metrics.measurement import Bounds, Measurement

N_GROUPS = 20
LEFT_OUT = (None, *range(N_GROUPS))  # no group, then each in turn
N_BOOTSTRAPS = 200
CONFIDENCE = 0.95
Z = 1.959964  # standard errors to either side of a normal mean that give it


def too_few(**sets: Records) -> str | None:
    """Why these sets are too small to be measured, or None. How small is not said: a real set's size may be a
    secret."""
    for name, records in sets.items():
        if len(records) < N_GROUPS:
            return f"the {name} has fewer than {N_GROUPS} records, too few for an interval"
    return None


def random_groups(records: Records, rng: np.random.Generator) -> list[Records]:
    """N_GROUPS random groups of equal size (to one record); random because files often come sorted."""
    return [records.take(rows) for rows in np.array_split(rng.permutation(len(records)), N_GROUPS)]


def code_counts(groups: Sequence[Records]) -> NDArray[np.float64]:
    """How many records of each group have each code, (G, N)."""
    return np.stack([np.bincount(group.indices, minlength=group.n_codes) for group in groups]).astype(np.float64)


def jackknife_interval(
    value: float, leave_outs: ArrayLike, bounds: Bounds, n_used: int, note: str | None = None
) -> Measurement:
    """The value with the jackknife interval of `leave_outs`, the same statistic without each group in turn.

    Group g of the cohort leaves together with group g of the test set: the pairs of groups are G independent draws, so
    one jackknife covers the noise of both sets. By the Efron-Stein inequality its variance is too large rather than too
    small, also where the statistic is not normal. The deviations are taken from the mean of the leave-outs, because
    they all share the shift that comes from having fewer records.
    """
    left = np.asarray(leave_outs)
    n_groups = len(left)
    error = np.sqrt((n_groups - 1) / n_groups * np.sum((left - left.mean()) ** 2))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n_groups - 1) * error)
    return Measurement.within(bounds, value, value - half, value + half, n_used, note)


def bootstrapped(
    value: float, draws: NDArray[np.float64], bounds: Bounds, n_used: int | None = None, note: str | None = None
) -> Measurement:
    """The value with the percentile interval of its bootstrap draws (B,)."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Measurement.within(bounds, value, min(low, value), max(high, value), n_used, note)
