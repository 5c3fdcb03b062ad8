"""Area under the ROC curve of a classifier trained on synthetic records."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from worker.engine.metrics.measurement import Metric, Words
from worker.engine.metrics.verdicts import near_yardstick


def auroc(truth: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """The chance that a record with the code scores above one without it; ties count half."""
    n_there = int(truth.sum())
    n_not = len(truth) - n_there
    ranks = stats.rankdata(scores)
    return float((ranks[truth].sum() - n_there * (n_there + 1) / 2) / (n_there * n_not))


AUROC = Metric(
    name="auroc",
    family="utility",
    direction="higher",
    bounds=(0.0, 1.0),
    meaning="How often a model trained on the synthetic records gives a real patient with the disease a higher risk "
    "than a "
    "real patient without it (0.5 is a coin toss, 1 is perfect).",
    rule=near_yardstick("real", "higher", good_within=0.03, fail_beyond=0.1),
    words=Words(
        good="A model for {label} trained on this cohort ranks real patients as well as one trained on real records.",
        caution="A model for {label} trained on this cohort ranks real patients somewhat worse than one trained on "
        "real "
        "records.",
        fail="A model for {label} trained on this cohort ranks real patients much worse than one trained on real "
        "records.",
        advice="Use the cohort to develop methods, and train the final model on real records.",
    ),
)
