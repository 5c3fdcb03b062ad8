"""Correlation matrix distance: do codes that go together in real records also go together in synthetic ones?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ehr.records import Records
from worker.engine.metrics.intervals import jackknife_interval, random_groups, too_few
from worker.engine.metrics.measurement import Bounds, CohortMetric, Measurement, SliceMetric, Words
from worker.engine.metrics.verdicts import between_yardsticks

BOUNDS: Bounds = (0.0, None)
WIDE = 4096  # codes, from which on pairs that never meet are not stored
ROWS = 512


def co_occurrence(records: Records, codes: NDArray[np.int64] | None = None) -> csr_array:
    """In how many records each pair of (some) codes stands together, (N, N); the diagonal counts the codes
    themselves."""
    x = records.to_csr(np.float64) if codes is None else records.to_csr(np.float64)[:, codes]
    return x.T @ x


def correlation(together: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Pearson correlations between codes from the co-occurrences in `n` records, (N, N).

    A constant column correlates 0, with itself too: its diagonal entry is 0 where any other is 1. A code that one set
    has and the other lacks therefore adds 1 to the squared distance beside the associations it lost, since the
    distance is the norm of the whole difference and not of its off-diagonal part.
    """
    p = together.diagonal() / n  # (N,)
    deviation = np.sqrt(p * (1 - p))
    inverse = np.divide(1.0, deviation, out=np.zeros_like(p), where=deviation > 0)
    rho = together / n
    rho -= np.outer(p, p)  # the covariances
    rho *= inverse[:, None]
    rho *= inverse
    np.fill_diagonal(rho, deviation > 0)  # exactly 1 or 0, free of rounding
    return rho  # (N, N)


def distance(a: NDArray[np.float64], n_a: int, b: NDArray[np.float64], n_b: int) -> float:
    """Frobenius norm of the difference of the correlations, from two co-occurrence matrices (N, N)."""
    return float(np.linalg.norm(correlation(a, n_a) - correlation(b, n_b)))


def wide_distances(cohort: Records, test: Records, rng: np.random.Generator) -> tuple[float, list[float]]:
    """(the distance of the whole sets, that without each pair of groups) for vocabularies of which N x N numbers fit no
    memory: most pairs never meet, and their correlations are a product of two vectors.

    With c the co-occurrences, d the inverse deviations and u = p d, a correlation off the diagonal is
    c_ij d_i d_j / n - u_i u_j. The squared norm of the difference of two such matrices is a sum over the pairs that
    meet and some products of the vectors; some codes' rows are added at a time.
    """
    pairs = [(cohort, test), *zip(random_groups(cohort, rng), random_groups(test, rng), strict=True)]
    counts = [[each.counts() for each in pair] for pair in pairs]
    whole = counts[0]
    sides = [
        [
            Vectors.of(count if place == 0 else all_of - count, len(every) - (0 if place == 0 else len(part)))
            for every, part, count, all_of in zip((cohort, test), pair, each, whole, strict=True)
        ]
        for place, (pair, each) in enumerate(zip(pairs, counts, strict=True))
    ]
    squares = [a.square_of_products(b) for a, b in sides]
    matrices = [[(x.T.tocsr(), x) for x in (each.to_csr(np.float64) for each in pair)] for pair in pairs]
    for start in range(0, cohort.n_codes, ROWS):
        rows = slice(start, start + ROWS)
        together = [[(by_code[rows] @ x).tocsr() for by_code, x in pair] for pair in matrices]
        for place, (a, b) in enumerate(sides):
            both = together[0] if place == 0 else [t - g for t, g in zip(together[0], together[place], strict=True)]
            squares[place] += a.square_of_sums(b, both[0], both[1], start)
    value, *leave_outs = (float(np.sqrt(max(square, 0.0))) for square in squares)
    return value, leave_outs


@dataclass(frozen=True)
class Vectors:
    """Of `n` records: p / deviation and 1 / deviation of each code, 0 where it does not vary, (N,)."""

    u: NDArray[np.float64]
    inverse: NDArray[np.float64]
    n: int

    @classmethod
    def of(cls, counts: NDArray[np.int64], n: int) -> "Vectors":
        p = counts / n
        deviation = np.sqrt(p * (1 - p))
        inverse = np.divide(1.0, deviation, out=np.zeros_like(p), where=deviation > 0)
        return cls(p * inverse, inverse, n)

    def square_of_products(self, other: "Vectors") -> float:
        """Sum over i != j of (u_i u_j - v_i v_j)^2, and of the diagonal, where correlations are 1 or 0."""
        u, v = self.u**2, other.u**2
        off = u.sum() ** 2 + v.sum() ** 2 - 2 * float(self.u @ other.u) ** 2 - float(((u - v) ** 2).sum())
        return float(off + ((self.inverse > 0) != (other.inverse > 0)).sum())

    def square_of_sums(self, other: "Vectors", mine: csr_array, others: csr_array, start: int) -> float:
        """What the pairs that meet add to it; of the rows from `start`."""
        s = (self._scaled(mine, start) - other._scaled(others, start)).tocoo()
        row, column = s.coords[0] + start, s.coords[1]
        off = row != column
        row, column, value = row[off], column[off], s.data[off]
        products = self.u[row] * self.u[column] - other.u[row] * other.u[column]
        return float((value * (value - 2 * products)).sum())

    def _scaled(self, together: csr_array, start: int) -> csr_array:
        rows = np.repeat(np.arange(together.shape[0]), np.diff(together.indptr)) + start
        data = together.data / self.n * self.inverse[rows] * self.inverse[together.indices]
        return csr_array((data, together.indices, together.indptr), shape=together.shape)


def measure(cohort: Records, test: Records, train: Records, rng: np.random.Generator) -> Measurement:
    """The distance of the whole sets, with the interval of leaving out one group of each at a time.

    The value is the plug-in distance: noise in N x N correlations never cancels, so it is above 0 even for two samples
    of one distribution, and more so with fewer records. The interval is about this value at this size, which is what
    can be compared with the floor; the extra noise of the smaller leave-outs is common to them and drops out.
    """
    if (reason := too_few(cohort=cohort, **{"test set": test})) is not None:
        return Measurement(absent=reason)
    if cohort.n_codes > WIDE:
        value, leave_outs = wide_distances(cohort, test, rng)
        return jackknife_interval(value, leave_outs, BOUNDS, len(cohort))
    in_cohort, in_test = co_occurrence(cohort).toarray(), co_occurrence(test).toarray()  # (N, N)
    leave_outs = []
    # one group's matrix at a time: all twenty together would be the largest thing in memory
    for x, y in zip(random_groups(cohort, rng), random_groups(test, rng), strict=True):
        without_x, without_y = in_cohort - co_occurrence(x).toarray(), in_test - co_occurrence(y).toarray()
        leave_outs.append(distance(without_x, len(cohort) - len(x), without_y, len(test) - len(y)))
    value = distance(in_cohort, len(cohort), in_test, len(test))
    return jackknife_interval(value, leave_outs, BOUNDS, len(cohort))


CMD = CohortMetric(
    name="cmd",
    title="Links between codes",
    direction="lower",
    bounds=BOUNDS,
    meaning="How far the links between codes (which diagnoses and procedures go together) differ from those in real "
    "records (0 = not at all; two sets of real records differ too, by chance).",
    rule=between_yardsticks("lower", good_within=0.5, fail_beyond=2.0, needs_contrast=True),
    words=Words(
        good="The way codes occur together is much closer to real records than to codes drawn one by one.",
        caution="Links between codes are weaker or different in part: trust single codes more than combinations.",
        fail="Codes occur together hardly more realistically than if each were drawn by itself.",
        unsure="There are too few records to tell whether codes occur together as they do in real ones.",
        advice="Train longer or on more records before studying which conditions occur together.",
    ),
    measure=measure,
)

SLICE_CMD = SliceMetric(
    name="slice_cmd",
    title="Links between codes",
    direction="lower",
    bounds=BOUNDS,
    meaning="How far the links between codes differ between synthetic and real patients who meet the condition.",
    rule=between_yardsticks("lower", good_within=0.5, fail_beyond=4.0, worse="unconditional", needs_contrast=True),
    words=Words(
        good="Among patients with the condition, the way codes occur together is much closer to real ones than to "
        "ordinary patients.",
        caution="Among patients with the condition, some links between codes are weaker or different.",
        fail="Among patients with the condition, codes occur together no more realistically than in ordinary patients.",
        unsure="There are too few patients with the condition to tell whether codes occur together realistically.",
        advice="Do not study combinations of codes within this condition on this cohort.",
    ),
    measure=measure,
)
