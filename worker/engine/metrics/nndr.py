"""Nearest-neighbour distance ratio: are synthetic records suspiciously close to one single training patient?"""

import numpy as np
from numpy.typing import NDArray

from worker.engine.metrics.attacks import AttackMetric, AttackResult, AttackSets
from worker.engine.metrics.measurement import Words
from worker.engine.metrics.nearest_comparison import ADVICE, compare_nearest
from worker.engine.metrics.verdicts import by_gain


def ratios(near: NDArray[np.int32]) -> NDArray[np.float64]:
    """L2 distance to the closest over the second closest record of all groups, (Q,), from (Q, G, 2).

    Two records at distance 0 are no more telling than two at any other one distance: their ratio is 1.
    """
    two = np.partition(near.reshape(len(near), -1), 1, axis=1)[:, :2].astype(np.float64)
    return np.sqrt(np.divide(two[:, 0], two[:, 1], out=np.ones(len(two)), where=two[:, 1] > 0))


def measure(sets: AttackSets, rng: np.random.Generator) -> AttackResult:
    """The share of synthetic records whose ratio to train is below their ratio to the holdout; 0.5 is ideal."""
    return compare_nearest(NNDR, sets, ratios, median=lambda near: float(np.median(ratios(near))))


NNDR = AttackMetric(
    name="nndr",
    title="Singling out training patients",
    meaning="The share of synthetic records that single out one training patient (much closer to the first than to the "
    "second) more than they single out anyone else (a half is ideal; passing this alone proves nothing).",
    rule=by_gain(caution_above=0.01, fail_above=0.1, unsure_above=0.3),
    words=Words(
        good="Synthetic records single out training patients no more than other people.",
        caution="Synthetic records may single out training patients slightly more than other people.",
        fail="Synthetic records clearly single out training patients.",
        unsure="There are too few records to rule out that synthetic records single out training patients.",
        advice=ADVICE,
    ),
    measure=measure,
)
