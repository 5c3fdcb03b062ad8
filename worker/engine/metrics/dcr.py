"""Distance to the closest record: do synthetic records lie closer to training patients than to others?"""

import numpy as np
from numpy.typing import NDArray

from worker.engine.metrics.attacks import AttackMetric, AttackResult, AttackSets
from worker.engine.metrics.measurement import Words
from worker.engine.metrics.nearest_comparison import ADVICE, compare_nearest
from worker.engine.metrics.verdicts import by_gain


def distances(near: NDArray[np.int32]) -> NDArray[np.float64]:
    """Distance to the closest record of all groups, (Q,), from the nearest in each group (Q, G, 2)."""
    return np.asarray(near[:, :, 0].min(axis=1), dtype=np.float64)


def measure(sets: AttackSets, rng: np.random.Generator) -> AttackResult:
    """The share of synthetic records closer to train than to an equally large part of the holdout; 0.5 is ideal."""
    return compare_nearest(DCR, sets, distances, median=lambda near: float(np.sqrt(np.median(distances(near)))))


DCR = AttackMetric(
    name="dcr",
    title="Closer to training patients",
    meaning="The share of synthetic records that lie closer to a training patient than to an equally large group of "
    "other patients (a half is ideal; passing this alone proves nothing).",
    rule=by_gain(caution_above=0.01, fail_above=0.1, unsure_above=0.3),
    words=Words(
        good="Synthetic records are as close to other people as to the training patients.",
        caution="Synthetic records may lie slightly closer to the training patients than to other people.",
        fail="Synthetic records lie clearly closer to the training patients than to other people.",
        unsure="There are too few records to rule out that synthetic records lie closer to the training patients.",
        advice=ADVICE,
    ),
    measure=measure,
)
