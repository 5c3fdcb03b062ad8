"""Membership inference by calibrated distance: how many training patients can be named while hardly ever being
wrong?"""

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records
from worker.engine.metrics.attacks import AttackMetric, AttackResult, AttackSets, Roles, certain
from worker.engine.metrics.intervals import N_BOOTSTRAPS, bootstrapped
from worker.engine.metrics.measurement import Words
from worker.engine.metrics.nearest import nearest
from worker.engine.metrics.verdicts import by_gain


def tpr_at_fpr(members: NDArray[np.float64], others: NDArray[np.float64], rate: float) -> float:
    """The share of members whose score is low enough when `rate` of the others' is; between points of the ROC curve
    linear, which is what breaking ties at random gives."""
    thresholds = np.unique(np.concatenate([members, others]))
    tpr = np.searchsorted(np.sort(members), thresholds, side="right") / len(members)
    fpr = np.searchsorted(np.sort(others), thresholds, side="right") / len(others)
    tpr, fpr = np.append(0.0, tpr), np.append(0.0, fpr)
    last = int(np.searchsorted(fpr, rate, side="right")) - 1  # the highest point at or below the rate
    if last == len(fpr) - 1:
        return float(tpr[last])
    step = (rate - fpr[last]) / (fpr[last + 1] - fpr[last])
    return float(tpr[last] + step * (tpr[last + 1] - tpr[last]))


def measure(sets: AttackSets, rng: np.random.Generator) -> AttackResult:
    """A target's score is its distance to the cohort over its distance to the reference set, which is the holdout
    without the target itself. Low means: closer to the cohort than such a patient should be.

    The attack has the whole cohort. That needs no correction for size: without memorisation members and non-members
    are exchangeable, and the true-positive rate equals the false-positive rate whatever the size.
    """
    members, others = sets.members, sets.non_members
    usual = nearest(members, others), nearest(others, others, same=True)
    scores = [
        (_score(members, cohort, usual[0]), _score(others, cohort, usual[1])) for cohort in (sets.cohort, sets.control)
    ]
    drawn = [[rng.integers(0, len(each), len(each)) for each in (members, others)] for _ in range(N_BOOTSTRAPS)]

    def at(rate: float) -> Roles:  # of false positives
        if len(others) * rate < 1:
            return Roles.missing(f"{100 * rate:g}% of the holdout records is less than one record")
        rates = (
            np.array([tpr_at_fpr(a, b, rate), *(tpr_at_fpr(a[i], b[j], rate) for i, j in drawn)]) for a, b in scores
        )
        guess = certain(rate, note="naming people at random")
        return Roles.compared(bootstrapped, rates, guess, len(sets.cohort), None).noting(sets.targets_note)

    return AttackResult(MIA_TPR_AT_FPR, at(0.01), {"at 0.1 % false positives": at(0.001)})


def _score(targets: Records, cohort: Records, usual: NDArray[np.int32]) -> NDArray[np.float64]:
    return np.asarray((1.0 + nearest(targets, cohort)) / (1.0 + usual))  # 1: two equal records have distance 0


MIA_TPR_AT_FPR = AttackMetric(
    name="mia_tpr_at_fpr",
    title="Membership, careful attacker",
    meaning="The share of training patients whom a careful attacker, wrong about only 1 in 100 other people, can name "
    "as members (1 % is chance).",
    rule=by_gain(caution_above=0.005, fail_above=0.02, unsure_above=0.1),
    words=Words(
        good="A careful attacker can name no more training patients than by chance.",
        caution="A careful attacker may name slightly more training patients than by chance.",
        fail="A careful attacker can name training patients: their records lie closer to the cohort than other "
        "people's.",
        unsure="There are too few records to rule out that a careful attacker can name training patients.",
        advice="Do not share this cohort. Train with more records or fewer passes over them.",
    ),
    measure=measure,
)
