"""Area under the precision-recall curve of a classifier trained on synthetic records."""

from collections.abc import Mapping

import numpy as np

from worker.engine.metrics.measurement import Measurement, Words
from worker.engine.metrics.ranking import AreaMetric, Curve
from worker.engine.metrics.verdicts import Limits, by_shortfall


def auprc(curve: Curve) -> float:
    """Average precision: the precision at each threshold, weighted by the recall it adds."""
    found, wrong = curve
    precision = found / np.maximum(found + wrong, 1)
    return float(np.sum(np.diff(found, prepend=0) * precision) / found[-1])


def limits(measured: Mapping[str, Measurement]) -> Limits:
    """Shares of what real records teach beyond chance. An area of 0.1 is nothing for a disease that one patient in ten
    has and much for one in a hundred, so no fixed difference would do. For an AUROC of 0.8, which is 0.3 above chance,
    the same shares are the limits that AUROC has."""
    real, chance = measured["real"].value, measured["chance"].value
    assert real is not None and chance is not None
    return Limits(good=0.1 * (real - chance), sure=0.2 * (real - chance), fail=(real - chance) / 3)


AUPRC = AreaMetric(
    name="auprc",
    title="Pointing out patients (AUPRC)",
    # that of a classifier that knows nothing is the share of patients with the disease
    meaning="How many of the patients whom a model trained on the synthetic records points out really have the "
    "disease, over all thresholds (1 is perfect; at random it is the share of patients who have the disease).",
    rule=by_shortfall(limits),
    words=Words(
        good="Such a model for {label} points out the right patients about as well as one trained on real records.",
        caution="Such a model for {label} points out wrong patients somewhat more often than one trained on real "
        "records.",
        fail="Such a model for {label} points out wrong patients much more often than one trained on real records.",
        unsure="There are too few real test patients with {label} to tell whether such a model points out the right "
        "patients as well as one trained on real records.",
        advice="Use the cohort to develop methods, and train the final model on real records.",
    ),
    area=auprc,
    chance=lambda prevalence: prevalence,
)
