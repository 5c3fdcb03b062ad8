"""Membership inference by a fixed distance: was this patient among those the model learned from?"""

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records
from worker.engine.metrics.attacks import AttackMetric, AttackResult, AttackSets, Roles, certain, sampled
from worker.engine.metrics.intervals import LEFT_OUT, N_GROUPS, jackknife_interval, random_groups
from worker.engine.metrics.measurement import Words
from worker.engine.metrics.nearest import nearest
from worker.engine.metrics.verdicts import by_gain

THRESHOLD = 3  # squared L2 distance, as in the paper


def f1(hit_members: float, hit_others: float, ratio: float) -> float:
    """F1 of calling a record a member, from the shares of members and of others that are called so.

    `ratio` is members : others. F1 = 2 TP / (2 TP + FP + FN), divided by the number of members.
    """
    return 2 * hit_members / (1 + hit_members + hit_others / ratio)


def measure(sets: AttackSets, rng: np.random.Generator) -> AttackResult:
    """F1 with the cohort and with the control in its place, on the same targets.

    The intervals leave out one group of targets, cohort and control at a time. Drawing targets again would not be
    enough: a cohort that happens to have a common record more often than the control calls more targets members.
    """
    n = min(len(sets.members), len(sets.non_members))
    targets = [sampled(records, n, rng) for records in (sets.members, sets.non_members)]
    places = [random_groups(records, rng) for records in (sets.cohort_at_size, sets.control_at_size)]
    near = [[_near(each, groups) for each in targets] for groups in places]  # of cohort and control, to both targets
    # to one digit: more would give away the sizes of a slice
    natural = max(round(len(sets.train) / len(sets.holdout), 1), 0.1)

    def at(ratio: float) -> Roles:
        scores = (np.array([_score(pair, ratio, group) for group in LEFT_OUT]) for pair in near)
        guess = certain(2 * ratio / (2 * ratio + 1), note="calling everyone a member")
        roles = Roles.compared(jackknife_interval, scores, guess, len(sets.cohort_at_size), sets.size_note)
        return roles.noting(sets.targets_note)

    return AttackResult(MIR, at(1.0), {"at the natural ratio": at(natural)})


def _near(targets: Records, groups: list[Records]) -> NDArray[np.bool_]:
    """Whether each group has a record that is nearly equal to the target, (targets, G)."""
    return np.stack([nearest(targets, group) <= THRESHOLD for group in groups], axis=1)


def _score(near: list[NDArray[np.bool_]], ratio: float, left_out: int | None) -> float:
    """F1 from the nearness of members and of others, without one group of targets and one of the cohort."""
    called = []
    for each in near:
        if left_out is not None:
            each = np.delete(each, left_out, axis=1)[np.arange(len(each)) % N_GROUPS != left_out]
        called.append(each.any(axis=1).mean())
    return f1(called[0], called[1], ratio)


MIR = AttackMetric(
    name="mir",
    title="Membership, by nearly equal records (F1)",
    meaning="How well someone who holds a patient's record can tell from the cohort whether the patient was among "
    "those the model learned from, by looking for a nearly equal synthetic record (F1 score: 1 if all training "
    "patients are recognised and nobody else, 0 if none is).",
    rule=by_gain(caution_above=0.01, fail_above=0.05, unsure_above=0.15),
    words=Words(
        good="Looking for nearly equal records tells nobody who was in the training data: it works no better than on "
        "records of other people.",
        caution="Looking for nearly equal records may tell a little more about who was in the training data than "
        "records of other people would.",
        fail="Training patients can be recognised: the cohort has records nearly equal to theirs, more often than it "
        "has for other people.",
        unsure="There are too few records to rule out that training patients can be recognised by nearly equal "
        "records.",
        advice="Do not share this cohort. Train with more records or fewer passes over them.",
    ),
    measure=measure,
)
