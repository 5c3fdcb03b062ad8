"""Do common codes stay common and rare codes rare? The paper's dimension-wise prevalence."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ehr.records import Records
from worker.engine.metrics.intervals import code_counts, jackknife_interval, random_groups, too_few
from worker.engine.metrics.measurement import Bounds, CohortMetric, Measurement, Words
from worker.engine.metrics.verdicts import between_yardsticks

BOUNDS: Bounds = (-1.0, 1.0)
MIN_CODES = 3  # two codes rank either alike or in reverse: that is no correlation


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Spearman rank correlation of two vectors (N,); NaN when one of them is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(stats.spearmanr(a, b).statistic)


def _measure(cohort: Records, test: Records, codes: NDArray[np.bool_], rng: np.random.Generator) -> Measurement:
    """Spearman correlation of the two prevalence vectors on the chosen codes, (N,)."""
    if (reason := too_few(cohort=cohort, **{"test set": test})) is not None:
        return Measurement(absent=reason)
    if codes.sum() < MIN_CODES:
        return Measurement(absent=f"only {int(codes.sum())} codes to rank; at least {MIN_CODES} are needed")
    # ranks of counts are ranks of prevalences: dividing by the number of records changes no order
    of_cohort = code_counts(random_groups(cohort, rng))[:, codes]  # (G, n)
    of_test = code_counts(random_groups(test, rng))[:, codes]  # (G, n)
    in_cohort, in_test = of_cohort.sum(axis=0), of_test.sum(axis=0)  # (n,)
    value = spearman(in_cohort, in_test)
    leave_outs = [spearman(in_cohort - x, in_test - y) for x, y in zip(of_cohort, of_test, strict=True)]
    if not np.isfinite([value, *leave_outs]).all():
        return Measurement(absent="all these codes are equally common in one of the sets, so they have no order")
    return jackknife_interval(value, leave_outs, BOUNDS, len(cohort))


def measure_all(cohort: Records, test: Records, train: Records, rng: np.random.Generator) -> Measurement:
    """Over the whole vocabulary."""
    return _measure(cohort, test, np.ones(test.n_codes, dtype=bool), rng)


def measure_rare(cohort: Records, test: Records, train: Records, rng: np.random.Generator) -> Measurement:
    """Over the codes below the median test prevalence; the whole test set chooses them once, for every leave-out."""
    prevalence = test.prevalence()
    return _measure(cohort, test, prevalence < np.median(prevalence), rng)


PREVALENCE_SPEARMAN = CohortMetric(
    name="prevalence_spearman",
    title="Order of codes, common to rare",
    direction="higher",
    bounds=BOUNDS,
    meaning="Whether the codes, ordered from common to rare, come in the same order in synthetic and real records "
    "(1 = the same order).",
    rule=between_yardsticks("higher", good_within=0.03, fail_beyond=0.1),
    words=Words(
        good="Common codes are common and rare codes are rare, as in real records.",
        caution="The order of codes from common to rare is somewhat off.",
        fail="Codes that should be common are rare, or the other way round.",
        unsure="There are too few records to tell whether common and rare codes come in the right order.",
        advice="Look at the codes that are off the most; train longer.",
    ),
    measure=measure_all,
)

PREVALENCE_SPEARMAN_RARE = CohortMetric(
    name="prevalence_spearman_rare",
    title="The same among rare codes",
    direction="higher",
    bounds=BOUNDS,
    meaning="The same agreement in order, looking only at the rarer half of the codes, where it is hardest.",
    rule=between_yardsticks("higher", good_within=0.06, fail_beyond=0.2),
    words=Words(
        good="Rare codes are as rare as they should be.",
        caution="Among rare codes, some are too common or too rare.",
        fail="How rare a rare code is cannot be learned from this cohort.",
        unsure="There are too few records to tell whether rare codes are as rare as they should be.",
        advice="Do not use the cohort for the frequency of rare conditions; ask for them by a condition instead.",
    ),
    measure=measure_rare,
)
