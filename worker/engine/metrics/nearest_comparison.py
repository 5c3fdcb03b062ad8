"""What `dcr` and `nndr` share: is a statistic of the distances lower for train than for an equally large holdout?"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ehr.disclosure import Discloses
from worker.engine.metrics.attacks import (
    GAIN_BOUNDS,
    MAX_COMPARED,
    AttackMetric,
    AttackResult,
    AttackSets,
    NearestDistances,
    Roles,
    certain,
)
from worker.engine.metrics.jackknife import N_GROUPS, jackknife_interval
from worker.engine.metrics.measurement import Bounds

BOUNDS: Bounds = (0.0, 1.0)
Statistic = Callable[[NDArray[np.int32]], NDArray[np.float64]]  # (Q, G, 2) -> (Q,)
# each can fail a cohort by itself, because the worst attack decides; passing both proves nothing
ADVICE = (
    "This counts by itself, even where the membership attacks find nothing. Train with more records or fewer passes "
    "over them before you share a cohort."
)
# a cohort of one chosen record would show how near the nearest patient is
MEDIANS = dict.fromkeys(("median_to_train", "median_to_holdout", "median_control_to_train"), Discloses.SINGLE_PATIENT)


def share_lower(to_train: NDArray[np.float64], to_holdout: NDArray[np.float64]) -> float:
    """The share of records whose value for train is the lower one; equal ones count half."""
    return float(np.mean(to_train < to_holdout) + 0.5 * np.mean(to_train == to_holdout))


def compare_nearest(
    metric: AttackMetric, sets: AttackSets, statistic: Statistic, median: Callable[[NDArray[np.int32]], float]
) -> AttackResult:
    """The share of records for which the statistic is lower for train, and its medians."""
    near = sets.nearest_distances
    medians = (median(each) for each in (near.cohort_to_train, near.cohort_to_holdout, near.control_to_train))
    return AttackResult(metric, _roles(near, statistic, sets), {}, dict(zip(MEDIANS, medians, strict=True)))


def _roles(near: NearestDistances, statistic: Statistic, sets: AttackSets) -> Roles:
    """Attack, control and gain; the intervals leave out one group of every set at a time."""

    def shares(left_out: int | None) -> tuple[float, float]:
        pairs = ((near.cohort_to_train, near.cohort_to_holdout), (near.control_to_train, near.control_to_holdout))
        attack, control = (share_lower(*(statistic(_without(each, left_out)) for each in pair)) for pair in pairs)
        return attack, control

    attack, control = shares(None)
    left = np.array([shares(group) for group in range(N_GROUPS)])  # (G, 2)
    n = len(near.cohort_to_train)
    larger = max(min(len(sets.cohort), len(sets.control)), min(len(sets.train), len(sets.holdout))) > MAX_COMPARED
    roles = Roles(
        jackknife_interval(attack, left[:, 0].tolist(), BOUNDS, n, sets.size_note),
        jackknife_interval(control, left[:, 1].tolist(), BOUNDS, n),
        certain(0.5, note="a record is as likely to be closer to either"),
        jackknife_interval(attack - control, (left[:, 0] - left[:, 1]).tolist(), GAIN_BOUNDS, n),
    )
    return roles.noting(f"on at most {MAX_COMPARED:,} random records of each set" if larger else None)


def _without(near: NDArray[np.int32], group: int | None) -> NDArray[np.int32]:
    """Without one group of the base and one of the queries, which are in random order."""
    if group is None:
        return near
    rows = np.arange(len(near)) % N_GROUPS != group
    return np.asarray(np.delete(near, group, axis=1)[rows])
