"""Area under the precision-recall curve of a classifier trained on synthetic records."""

import numpy as np
from numpy.typing import NDArray

from worker.engine.metrics.measurement import Metric, Words
from worker.engine.metrics.verdicts import near_yardstick


def auprc(truth: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """Average precision: the precision at each threshold, weighted by the recall it adds."""
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(truth[order])
    # records with the same score are called together: only the last of them is a point of the curve
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    precision = found[last] / (last + 1)
    return float(np.sum(np.diff(found[last], prepend=0) * precision) / found[-1])


AUPRC = Metric(
    name="auprc",
    family="utility",
    direction="higher",
    bounds=(0.0, 1.0),
    meaning="How many of the patients whom a model trained on the synthetic records points out really have the "
    "disease, over "
    "all thresholds (1 is perfect; pointing out people at random gives the share of patients who have it).",
    rule=near_yardstick("real", "higher", good_within=0.05, fail_beyond=0.15),
    words=Words(
        good="Such a model for {label} points out the right patients as well as one trained on real records.",
        caution="Such a model for {label} points out wrong patients somewhat more often than one trained on real "
        "records.",
        fail="Such a model for {label} points out wrong patients much more often than one trained on real records.",
        advice="Use the cohort to develop methods, and train the final model on real records.",
    ),
)
