"""Membership inference by calibrated distance: how many training patients can be named while hardly ever being
wrong?"""

import numpy as np
from numpy.typing import NDArray

from ehr.disclosure import Discloses
from ehr.records import Records
from worker.engine.metrics.attacks import (
    GAIN_BOUNDS,
    N_BOOTSTRAPS,
    AttackMetric,
    AttackResult,
    AttackSets,
    Roles,
    bootstrapped,
    certain,
)
from worker.engine.metrics.measurement import Bounds, Words
from worker.engine.metrics.nearest import nearest
from worker.engine.metrics.verdicts import by_gain

BOUNDS: Bounds = (0.0, 1.0)
RATES = (0.01, 0.001)  # false positives


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
    targets = (sets.members, sets.non_members)
    reference = (nearest(sets.members, sets.non_members), nearest(sets.non_members, sets.non_members, same=True))
    scores = {
        role: [_score(each, cohort, usual) for each, usual in zip(targets, reference, strict=True)]
        for role, cohort in (("attack", sets.cohort), ("control", sets.control))
    }
    drawn = [[rng.integers(0, len(each), len(each)) for each in targets] for _ in range(N_BOOTSTRAPS)]
    by_rate = {rate: _at(rate, scores, drawn, len(sets.cohort), sets.targets_note) for rate in RATES}
    strict = by_rate[RATES[1]]
    if strict is None:
        strict = Roles.missing(f"{RATES[1]:.1%} of the holdout records is less than one record")
    return AttackResult(MIA_TPR_AT_FPR, by_rate[RATES[0]] or _too_few(), {"at 0.1 % false positives": strict})


def _score(targets: Records, cohort: Records, usual: NDArray[np.int32]) -> NDArray[np.float64]:
    return np.asarray((1.0 + nearest(targets, cohort)) / (1.0 + usual))  # 1: two equal records have distance 0


def _at(
    rate: float,
    scores: dict[str, list[NDArray[np.float64]]],
    drawn: list[list[NDArray[np.int64]]],
    n_used: int,
    note: str | None,
) -> Roles | None:
    if len(scores["attack"][1]) * rate < 1:
        return None
    value = {role: tpr_at_fpr(pair[0], pair[1], rate) for role, pair in scores.items()}
    draws = {
        role: np.array([tpr_at_fpr(pair[0][m], pair[1][o], rate) for m, o in drawn]) for role, pair in scores.items()
    }
    gain = value["attack"] - value["control"]
    roles = Roles(
        bootstrapped(value["attack"], draws["attack"], BOUNDS, n_used),
        bootstrapped(value["control"], draws["control"], BOUNDS, n_used),
        certain(rate, note="naming people at random"),
        bootstrapped(gain, draws["attack"] - draws["control"], GAIN_BOUNDS, n_used),
    )
    return roles.noting(note)


def _too_few() -> Roles:
    return Roles.missing(f"{RATES[0]:.0%} of the holdout records is less than one record")


MIA_TPR_AT_FPR = AttackMetric(
    name="mia_tpr_at_fpr",
    title="Membership, careful attacker",
    discloses=Discloses.SHARE_OF_PATIENTS,
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
