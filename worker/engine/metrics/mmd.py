"""Maximum mean discrepancy: do whole records, not only single codes, come from the same distribution?"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.intervals import jackknife_interval, random_groups, too_few
from worker.engine.metrics.measurement import Bounds, CohortMetric, Measurement, Words
from worker.engine.metrics.verdicts import between_yardsticks

BOUNDS: Bounds = (-2.0, 2.0)  # each mean of kernels lies in [0, 1]
N_KERNELS = 5
MAX_RECORDS = 10_000


def distance_counts(a: Sequence[Records], b: Sequence[Records], n_bins: int) -> NDArray[np.int64]:
    """How many pairs of records of groups a_g and b_h are at each squared distance, (G, G, D).

    Between 0/1 records the squared L2 distance is the integer |x| + |x'| - 2 x.x', so these counts hold everything that
    any number of kernels and the mean distance need: no kernel is evaluated per pair. One group is dense at a time.
    """
    counts = np.zeros((len(a), len(b), n_bins), dtype=np.int64)
    minus_twice = [-2 * x.to_csr(np.int32) for x in a]
    for h, y in enumerate(b):
        y_columns = np.ascontiguousarray(y.to_dense(np.int32).T)  # (N, |b_h|)
        for g, x in enumerate(a[: h + 1] if a is b else a):
            d2 = minus_twice[g] @ y_columns  # (|a_g|, |b_h|)
            d2 += x.sizes().astype(np.int32)[:, None]
            d2 += y.sizes().astype(np.int32)
            counts[g, h] = np.bincount(d2.ravel(), minlength=n_bins)
            if a is b and g == h:
                counts[g, g, 0] -= len(x)  # within a set only pairs i != j count
            elif a is b:
                counts[h, g] = counts[g, h]
    return counts


def mean_kernel(pooled: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """The mean of the kernels at each squared distance, (D,), for the pooled pairs' distances; None if all are 0.

    Paper, appendix on evaluation metrics: k_g = exp(-d^2 / (2 h_g^2)), h_g = Avg * 2^(g - m/2) with g = 1..m, where Avg
    is the mean L2 distance over all pairs of both samples. MMD is linear in the kernel, so its mean over kernels is
    the MMD of the mean kernel.
    """
    d2 = np.arange(len(pooled))
    average = float(pooled @ np.sqrt(d2) / pooled.sum())
    if average == 0:
        return None
    bandwidths = average * 2.0 ** (np.arange(1, N_KERNELS + 1) - N_KERNELS / 2)  # (m,)
    return np.asarray(np.exp(-d2[:, None] / (2 * bandwidths**2)).mean(axis=1))


def measure(
    cohort: Records, test: Records, train: Records, rng: np.random.Generator, max_records: int = MAX_RECORDS
) -> Measurement:
    """Unbiased squared MMD: mean kernel within each set (i != j) minus twice the mean across.

    Exact up to `max_records` of each set and from a random sample of that many above. Unbiased, so two samples of one
    distribution give 0 on average, and a value may fall just below 0.
    """
    if (reason := too_few(cohort=cohort, **{"test set": test})) is not None:
        return Measurement(absent=reason)
    x, y = (random_groups(sampled(records, max_records, rng), rng) for records in (cohort, test))
    n_bins = max(int(cohort.sizes().max()), int(test.sizes().max())) * 2 + 1
    counts = [distance_counts(x, x, n_bins), distance_counts(y, y, n_bins), distance_counts(x, y, n_bins)]
    xx, yy, xy = (each.sum(axis=(0, 1)) for each in counts)  # (D,)
    kernel = mean_kernel(xx + yy + 2 * xy)
    if kernel is None:
        return Measurement(absent="all records are the same, so there is no distance to set the bandwidth by")
    sums = [each @ kernel for each in counts]  # (G, G)
    pairs = [each.sum(axis=2) for each in counts]  # (G, G)

    def discrepancy(kept: NDArray[np.int64]) -> float:
        chosen = np.ix_(kept, kept)
        within_x, within_y, across = (k[chosen].sum() / n[chosen].sum() for k, n in zip(sums, pairs, strict=True))
        return float(within_x + within_y - 2 * across)

    # The bandwidth stays that of the whole sample: it is the ruler, not the thing measured. For two samples of one
    # distribution the statistic is a degenerate U-statistic, whose jackknife variance is about twice the true one:
    # 0 then lies in the interval more often than the level says, not less.
    groups = np.arange(len(x))
    leave_outs = [discrepancy(np.delete(groups, g)) for g in groups]
    cut = max(len(cohort), len(test)) > max_records
    note = f"measured on {max_records:,} random records of each larger set" if cut else None
    return jackknife_interval(discrepancy(groups), leave_outs, BOUNDS, min(len(cohort), max_records), note)


MMD = CohortMetric(
    name="mmd",
    title="Whole records",
    direction="lower",
    bounds=BOUNDS,
    meaning="How easily whole synthetic records can be told from real ones by their similarity (0 = not at all).",
    rule=between_yardsticks("lower", good_within=0.0001, fail_beyond=0.001),
    words=Words(
        good="Whole records are much closer to real ones than records with unrelated codes.",
        caution="Whole records differ from real ones by a little more than chance.",
        fail="Whole records are as easy to tell from real ones as records with unrelated codes.",
        unsure="There are too few records to tell whether whole records could be told from real ones.",
        advice="Train longer, or use the cohort for counts of single codes only.",
    ),
    measure=measure,
)
