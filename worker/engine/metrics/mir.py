"""Membership inference by a fixed distance: was this patient among those the model learned from?"""

import numpy as np
from numpy.typing import NDArray

from worker.engine.metrics.attacks import (
    GAIN_BOUNDS,
    N_BOOTSTRAPS,
    AttackMetric,
    AttackResult,
    AttackSets,
    Roles,
    bootstrapped,
    certain,
    sampled,
)
from worker.engine.metrics.measurement import Bounds, Words
from worker.engine.metrics.nearest import nearest
from worker.engine.metrics.verdicts import by_gain
from worker.engine.records import Records

BOUNDS: Bounds = (0.0, 1.0)
THRESHOLD = 3  # squared L2 distance, as in the paper


def f1(hit_members: NDArray[np.float64], hit_others: NDArray[np.float64], ratio: float) -> NDArray[np.float64]:
    """F1 of calling a record a member, from the shares of members and of others that are called so.

    `ratio` is members : others. F1 = 2 TP / (2 TP + FP + FN), divided by the number of members.
    """
    return 2 * hit_members / (1 + hit_members + hit_others / ratio)


def measure(sets: AttackSets, rng: np.random.Generator) -> AttackResult:
    """F1 with the cohort and with the control in its place, on the same targets."""
    n = min(len(sets.members), len(sets.non_members))
    members, others = sampled(sets.members, n, rng), sampled(sets.non_members, n, rng)
    shares = []  # for members and others: how often each pair (called by the attack, called by the control) occurs
    for targets in (members, others):
        called = [_called(targets, cohort) for cohort in (sets.cohort_at_size, sets.control_at_size)]
        shares.append(np.bincount(called[0] * 2 + called[1], minlength=4) / n)
    # drawing targets again changes only how many have each pair: a bootstrap is one multinomial draw
    again = [rng.multinomial(n, each, size=N_BOOTSTRAPS) / n for each in shares]  # (B, 4) each
    natural = len(sets.train) / len(sets.holdout)
    by_ratio = {}
    for name, ratio in (("balanced", 1.0), ("natural", natural)):
        attack, control = (_score(shares, role, ratio) for role in ("attack", "control"))
        draws = [_score(again, role, ratio) for role in ("attack", "control")]
        by_ratio[name] = Roles(
            bootstrapped(float(attack), draws[0], BOUNDS, len(sets.cohort_at_size), sets.size_note),
            bootstrapped(float(control), draws[1], BOUNDS, len(sets.control_at_size)),
            certain(2 * ratio / (2 * ratio + 1), note="calling everyone a member"),
            bootstrapped(float(attack - control), draws[0] - draws[1], GAIN_BOUNDS, len(sets.cohort_at_size)),
        )
    return AttackResult(MIR, by_ratio.pop("balanced"), {"at the natural ratio": by_ratio["natural"]})


_PAIRS = {"attack": [2, 3], "control": [1, 3]}  # pairs (attack, control) in which that role calls the target a member


def _score(shares: list[NDArray[np.float64]], role: str, ratio: float) -> NDArray[np.float64]:
    """F1 from the shares of the four pairs (last axis) among members and among others."""
    members, others = (each[..., _PAIRS[role]].sum(axis=-1) for each in shares)
    return f1(members, others, ratio)


def _called(targets: Records, cohort: Records) -> NDArray[np.int64]:
    return (nearest(targets, cohort) <= THRESHOLD).astype(np.int64)


MIR = AttackMetric(
    name="mir",
    family="privacy",
    direction="lower",
    bounds=BOUNDS,
    meaning="How well someone who holds a patient's record can tell from the cohort whether the patient was among "
    "those "
    "the model learned from, by looking for a nearly equal synthetic record.",
    rule=by_gain(caution_above=0.01, fail_above=0.05, unsure_above=0.15),
    words=Words(
        good="Looking for nearly equal records tells nobody who was in the training data: it works no better than on "
        "records of other people.",
        caution="Looking for nearly equal records may tell a little more about who was in the training data than "
        "records "
        "of other people would.",
        fail="Training patients can be recognised: the cohort has records nearly equal to theirs, more often than it "
        "has "
        "for other people.",
        unsure="There are too few records to rule out that training patients can be recognised by nearly equal "
        "records.",
        advice="Do not share this cohort. Train with more records or fewer passes over them.",
    ),
    measure=measure,
)
