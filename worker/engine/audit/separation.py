"""How well a score tells members from others: area under the curve, and true positives at few false ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.engine.metrics.intervals import N_BOOTSTRAPS, bootstrapped
from worker.engine.metrics.measurement import Bounds, Measurement
from worker.engine.metrics.mia_tpr_at_fpr import tpr_at_fpr

Scores = NDArray[np.float64]
FALSE_POSITIVES = ("0.001", "0.01", "0.1")
UNIT: Bounds = (0.0, 1.0)
FEWEST_FALSE = 5  # people among the others whom the rate lets through; fewer make a threshold of chance


@dataclass(frozen=True)
class Separation:
    """Figures with their intervals over people, and the standard errors that verdicts use."""

    auc: Measurement
    tpr_at: dict[str, Measurement]
    errors: dict[str, float]  # of "auc" and of each rate


def auc(members: Scores, others: Scores) -> float:
    """P(a member scores higher than another person); ties count half."""
    below = np.sort(others)
    wins = sum(int(np.searchsorted(below, members, side).sum()) for side in ("left", "right"))
    return wins / 2 / (len(members) * len(others))


def separation(members: Scores, others: Scores, rng: np.random.Generator) -> Separation:
    """Scores are high for members. Intervals are by drawing both sides again."""
    draws = [
        (members[rng.integers(0, len(members), len(members))], others[rng.integers(0, len(others), len(others))])
        for _ in range(N_BOOTSTRAPS)
    ]
    drawn = np.array([auc(*draw) for draw in draws])
    errors = {"auc": float(drawn.std(ddof=1))}
    tpr_at = {}
    for rate in FALSE_POSITIVES:
        if len(others) * float(rate) < FEWEST_FALSE:
            tpr_at[rate] = Measurement(absent=f"too few people to accept {100 * float(rate):g}% false positives")
            continue
        found = np.array([tpr_at_fpr(-a, -b, float(rate)) for a, b in draws])
        tpr_at[rate] = bootstrapped(tpr_at_fpr(-members, -others, float(rate)), found, UNIT)
        errors[rate] = float(found.std(ddof=1))
    return Separation(bootstrapped(auc(members, others), drawn, UNIT), tpr_at, errors)


def control(others: Scores, rng: np.random.Generator) -> Separation:
    """The same where there is nothing to find: half of the others in the members' place."""
    order = rng.permutation(len(others))
    half = len(others) // 2
    return separation(others[order[:half]], others[order[half:]], rng)
