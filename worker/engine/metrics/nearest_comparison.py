"""What `dcr` and `nndr` share: is a statistic of the distances lower for train than for an equally large holdout?"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from worker.engine.metrics.attacks import MAX_COMPARED, AttackMetric, AttackResult, AttackSets, Roles, certain
from worker.engine.metrics.intervals import LEFT_OUT, N_GROUPS, jackknife_interval

Statistic = Callable[[NDArray[np.int32]], NDArray[np.float64]]  # (Q, G, 2) -> (Q,)
# each can fail a cohort by itself, because the worst attack decides; passing both proves nothing
ADVICE = (
    "This counts by itself, even where the membership attacks find nothing. Train with more records or fewer passes "
    "over them before you share a cohort."
)
MEDIANS = ("median_to_train", "median_to_holdout", "median_control_to_train")


def share_lower(to_train: NDArray[np.float64], to_holdout: NDArray[np.float64]) -> float:
    """The share of records whose value for train is the lower one; equal ones count half."""
    return float(np.mean(to_train < to_holdout) + 0.5 * np.mean(to_train == to_holdout))


def compare_nearest(
    metric: AttackMetric, sets: AttackSets, statistic: Statistic, median: Callable[[NDArray[np.int32]], float]
) -> AttackResult:
    """The share of records for which the statistic is lower for train, and its medians. The intervals leave out one
    group of every set at a time."""
    (cohort_to_train, cohort_to_holdout), (control_to_train, _) = near = sets.nearest_distances
    shares = (
        np.array([share_lower(*(statistic(_without(each, group)) for each in pair)) for group in LEFT_OUT])
        for pair in near
    )
    guess = certain(0.5, note="a record is as likely to be closer to either")
    roles = Roles.compared(jackknife_interval, shares, guess, len(cohort_to_train), sets.size_note)
    if max(min(len(sets.cohort), len(sets.control)), min(len(sets.train), len(sets.holdout))) > MAX_COMPARED:
        roles = roles.noting(f"on at most {MAX_COMPARED:,} random records of each set")
    medians = (median(each) for each in (cohort_to_train, cohort_to_holdout, control_to_train))
    return AttackResult(metric, roles, {}, dict(zip(MEDIANS, medians, strict=True)))


def _without(near: NDArray[np.int32], group: int | None) -> NDArray[np.int32]:
    """Without one group of the base and one of the queries, which are in random order."""
    if group is None:
        return near
    rows = np.arange(len(near)) % N_GROUPS != group
    return np.asarray(np.delete(near, group, axis=1)[rows])
