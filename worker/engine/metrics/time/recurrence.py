"""Do codes that come back come back, and codes that do not stay away?"""

import numpy as np

from ehr.histories import Histories
from worker.engine.metrics.intervals import N_GROUPS
from worker.engine.metrics.measurement import Bounds, HistoryMetric, Measurement, Words
from worker.engine.metrics.prevalence_spearman import MIN_CODES, spearman
from worker.engine.metrics.time.groups import Floats, group_of, jackknifed, too_few, without
from worker.engine.metrics.verdicts import between_yardsticks

BOUNDS: Bounds = (-1.0, 1.0)
FEWEST_VISITS = 30  # with a code that another visit follows, below which its recurrence is noise


def recurrences(histories: Histories, rng: np.random.Generator) -> Floats:
    """By group and code: visits that another one follows, and of these visits those after which the code is there
    again, (G, 2, N)."""
    groups = group_of(histories, rng)[histories.patients()]
    rows = np.delete(np.arange(len(histories.visits)), histories.offsets[1:] - 1)
    now, later = histories.visits.take(rows), histories.visits.take(rows + 1)
    n = histories.n_codes
    again = np.isin(now.rows() * n + now.indices, later.rows() * n + later.indices)
    key = groups[rows][now.rows()] * n + now.indices
    counts = [np.bincount(each, minlength=N_GROUPS * n).reshape(N_GROUPS, n) for each in (key, key[again])]
    return np.stack(counts, axis=1).astype(np.float64)


def measure(cohort: Histories, test: Histories, rng: np.random.Generator) -> Measurement:
    """Spearman correlation over codes of P(the code at the next visit | the code)."""
    if (reason := too_few(cohort, test)) is not None:
        return Measurement(absent=reason)
    ours, real = (recurrences(each, rng) for each in (cohort, test))
    chosen = (ours.sum(axis=0)[0] >= FEWEST_VISITS) & (real.sum(axis=0)[0] >= FEWEST_VISITS)
    if chosen.sum() < MIN_CODES:
        return Measurement(absent=f"fewer than {MIN_CODES} codes are seen {FEWEST_VISITS} times with a visit after")

    def statistic(left_out: int | None) -> float:
        tried_and_kept = [without(each, left_out)[:, chosen] for each in (ours, real)]
        rates = [kept / np.maximum(tried, 1) for tried, kept in tried_and_kept]
        return spearman(rates[0], rates[1])

    return jackknifed(statistic, BOUNDS, len(cohort), "all codes come back equally often")


RECURRENCE = HistoryMetric(
    name="recurrence",
    title="Codes that come back",
    direction="higher",
    bounds=BOUNDS,
    meaning="How well codes rank by how often they are there again at the next visit (1 = as in real patients).",
    rule=between_yardsticks("higher", good_within=0.03, fail_beyond=0.3, worse="shuffled"),
    words=Words(
        good="Lasting codes last and passing codes pass, as in real patients.",
        caution="Some codes come back more or less often than in real patients.",
        fail="Which codes come back has little to do with real patients.",
        unsure="There are too few patients to tell whether codes come back as in real ones.",
        advice="Do not study the course of chronic disease with the cohort; train longer.",
    ),
    measure=measure,
)
