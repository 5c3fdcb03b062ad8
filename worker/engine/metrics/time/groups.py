"""Intervals of metrics of patients over time: leave out one random group of patients at a time, as for records."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ehr.histories import Histories
from worker.engine.metrics.intervals import LEFT_OUT, N_GROUPS, jackknife_interval
from worker.engine.metrics.measurement import Bounds, Measurement

Floats = NDArray[np.float64]


def too_few(cohort: Histories, test: Histories) -> str | None:
    """Why these patients are too few to be measured, or None."""
    for name, histories in (("cohort", cohort), ("test set", test)):
        if len(histories) < N_GROUPS:
            return f"the {name} has fewer than {N_GROUPS} patients, too few for an interval"
    return None


def group_of(histories: Histories, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random one of N_GROUPS equally large groups for each patient, (P,)."""
    return rng.permutation(len(histories)) % N_GROUPS


def jackknifed(
    statistic: Callable[[int | None], float | None], bounds: Bounds, n_used: int, nothing: str
) -> Measurement:
    """A statistic that can leave out a group, with its interval; absent because of `nothing` where it is None."""
    value, *left = (statistic(group) for group in LEFT_OUT)
    known = [each for each in left if each is not None and np.isfinite(each)]
    if value is None or not np.isfinite(value) or len(known) < len(left):
        return Measurement(absent=nothing)
    return jackknife_interval(value, known, bounds, n_used)


def without(counts: Floats, group: int | None) -> Floats:
    """Sums over groups (G, ...) but one."""
    total: Floats = counts.sum(axis=0)
    return total if group is None else total - counts[group]
