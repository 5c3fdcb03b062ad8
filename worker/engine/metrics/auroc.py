"""Area under the ROC curve of a classifier trained on synthetic records."""

import numpy as np

from worker.engine.metrics.measurement import Words
from worker.engine.metrics.ranking import AreaMetric, Curve
from worker.engine.metrics.verdicts import Limits, by_shortfall


def auroc(curve: Curve) -> float:
    """The chance that a record with the code scores above one without it; ties count half."""
    found, wrong = curve
    above = (found + np.append(0, found[:-1])) / 2  # records with the code above each group of equal scores
    return float(np.sum(np.diff(wrong, prepend=0) * above) / (found[-1] * wrong[-1]))


LIMITS = Limits(good=0.03, sure=0.06, fail=0.1)

AUROC = AreaMetric(
    name="auroc",
    title="Ranking patients by risk (AUROC)",
    meaning="How often a model trained on the synthetic records gives a real patient with the disease a higher risk "
    "than a real patient without it (0.5 is a coin toss, 1 is perfect).",
    rule=by_shortfall(lambda _: LIMITS),
    words=Words(
        good="A model for {label} trained on this cohort ranks real patients about as well as one trained on real "
        "records.",
        caution="A model for {label} trained on this cohort ranks real patients somewhat worse than one trained on "
        "real records.",
        fail="A model for {label} trained on this cohort ranks real patients much worse than one trained on real "
        "records.",
        unsure="There are too few real test patients with {label} to tell whether a model trained on this cohort ranks "
        "patients as well as one trained on real records.",
        advice="Use the cohort to develop methods, and train the final model on real records.",
    ),
    area=auroc,
    chance=lambda _: 0.5,
)
