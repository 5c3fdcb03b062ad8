"""Medical concept abundance distance: do synthetic patients have as many codes as real ones?"""

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records
from worker.engine.metrics.intervals import CONFIDENCE, too_few
from worker.engine.metrics.measurement import Bounds, CohortMetric, Measurement, SliceMetric, Words
from worker.engine.metrics.verdicts import between_yardsticks

BOUNDS: Bounds = (0.0, 1.0)
N_BOOTSTRAPS = 1000


def distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half the summed absolute differences of two sets of shares, over the last axis: the total variation."""
    return np.asarray(0.5 * np.abs(a - b).sum(axis=-1))


def measure(cohort: Records, test: Records, train: Records, rng: np.random.Generator) -> Measurement:
    """The distance between the two distributions of codes per record, with a bootstrap interval.

    Drawing records again only changes how many have each number of codes, so a bootstrap is one multinomial draw on the
    counts. Its distances are larger on average, since noise comes on top of noise and none of it cancels in an
    absolute value; that shift is taken out, and their spread is put around the value.
    """
    if (reason := too_few(cohort=cohort, **{"test set": test})) is not None:
        return Measurement(absent=reason)
    n_bins = max(int(cohort.sizes().max()), int(test.sizes().max())) + 1
    in_cohort, in_test = (np.bincount(each.sizes(), minlength=n_bins) / len(each) for each in (cohort, test))  # (K,)
    value = min(float(distance(in_cohort, in_test)), 1.0)  # shares add up to 1 but for rounding
    again_cohort, again_test = (
        rng.multinomial(len(each), shares, size=N_BOOTSTRAPS) / len(each)  # (bootstraps, K)
        for each, shares in ((cohort, in_cohort), (test, in_test))
    )
    again = distance(again_cohort, again_test)  # (bootstraps,)
    tail = (1 - CONFIDENCE) / 2
    low, high = value + np.quantile(again, [tail, 1 - tail]) - again.mean()
    return Measurement.within(BOUNDS, value, min(low, value), max(high, value), len(cohort))


MCAD = CohortMetric(
    name="mcad",
    title="Codes per record",
    # a cohort whose records all have three codes shows how many patients have three
    direction="lower",
    bounds=BOUNDS,
    meaning="The share of synthetic patients who would need another number of codes to match real ones (0 = none).",
    rule=between_yardsticks("lower", good_within=0.02, fail_beyond=0.2),
    words=Words(
        good="Synthetic patients have as many codes as real ones.",
        caution="Some synthetic patients have too many or too few codes.",
        fail="The number of codes per patient is wrong for many synthetic patients.",
        unsure="There are too few records to tell whether synthetic patients have as many codes as real ones.",
        advice="Do not use the cohort for burden of disease or cost; train longer.",
    ),
    measure=measure,
)

SLICE_MCAD = SliceMetric(
    name="slice_mcad",
    title="Codes per record",
    direction="lower",
    bounds=BOUNDS,
    meaning="The share of synthetic patients with the condition who would need another number of codes to match real "
    "ones.",
    rule=between_yardsticks("lower", good_within=0.03, fail_beyond=0.25, worse="unconditional"),
    words=Words(
        good="Synthetic patients with the condition have as many codes as real ones.",
        caution="Some synthetic patients with the condition have too many or too few codes.",
        fail="The number of codes is wrong for many synthetic patients with the condition.",
        unsure="There are too few patients with the condition to tell whether they have as many codes as real ones.",
        advice="Do not use the cohort for burden of disease within this condition.",
    ),
    measure=measure,
)
