"""Can one learn from synthetic patients what the next visit of a real one brings?

A ridge regression from what was (codes of this visit, codes ever, numbers) to what comes (codes of the next visit, and
whether it comes within 30 days), fitted to synthetic patients and tried on real ones. Linear, because it is fitted in a
second whatever the number of codes, and because its ranking is what counts.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.sparse import csr_array, hstack

from ehr.histories import Histories
from ehr.records import Records
from worker.engine.metrics.auroc import AUROC
from worker.engine.metrics.intervals import N_GROUPS
from worker.engine.metrics.measurement import Bounds, HistoryMetric, Measurement, Words
from worker.engine.metrics.ranking import Ranking
from worker.engine.metrics.time.groups import Floats, group_of, jackknifed, too_few, without
from worker.engine.metrics.verdicts import between_yardsticks

BOUNDS: Bounds = (0.0, 1.0)
RIDGE = 30.0
TOP = 10
READMITTED_WITHIN = 30  # days
MOST_VISITS = 60_000  # that are learned from
MOST_CODES = 1_000  # the commonest of the real patients: all codes with each other are held in memory
FEWEST_POSITIVES = 20  # real visits that a code must be at to be ranked
Measure = Callable[[Histories, Histories, np.random.Generator], Measurement]


def features(histories: Histories) -> csr_array:
    """What is known after each visit, (V, 2 N + 4)."""
    visits = histories.visits
    numbers = np.stack(
        [
            np.ones(len(visits)),
            np.log1p(np.arange(len(visits)) - np.repeat(histories.offsets[:-1], histories.visit_counts())),
            np.log1p(histories.days()) / 5,
            np.log1p(histories.gaps) / 5,
        ],
        axis=1,
    )
    static = histories.static.take(histories.patients()).to_csr()
    return csr_array(hstack([visits.to_csr(), ever_so_far(histories).to_csr() + static, csr_array(numbers)]))


def ever_so_far(histories: Histories) -> Records:
    """The codes of each visit and of all visits before it."""
    visits = histories.visits
    patient = histories.patients()[visits.rows()]
    _, first = np.unique(patient * visits.n_codes + visits.indices, return_index=True)
    rows, codes = visits.rows()[first], visits.indices[first]
    spans = histories.offsets[1:][histories.patients()[rows]] - rows
    at = np.repeat(rows, spans) + np.arange(spans.sum()) - np.repeat(np.cumsum(spans) - spans, spans)
    return Records.from_pairs(at, np.repeat(codes, spans), len(visits), visits.n_codes)


def _followed(histories: Histories) -> NDArray[np.int64]:
    """Visits that another one of the patient follows."""
    return np.delete(np.arange(len(histories.visits)), histories.offsets[1:] - 1)


def _some(histories: Histories, rng: np.random.Generator) -> Histories:
    """As many random patients as have MOST_VISITS visits."""
    patients = rng.permutation(len(histories))
    enough = int(np.searchsorted(np.cumsum(histories.visit_counts()[patients]), MOST_VISITS)) + 1
    return histories.take(patients[:enough])


def _commonest(cohort: Histories, test: Histories) -> tuple[Histories, Histories, str | None]:
    """Both with the codes that are looked at, and a remark if those are not all."""
    if test.n_codes <= MOST_CODES:
        return cohort, test, None
    counts = np.bincount(test.visits.indices, minlength=test.n_codes)
    number = np.full(test.n_codes, -1)
    number[np.sort(np.argsort(-counts, kind="stable")[:MOST_CODES])] = np.arange(MOST_CODES)
    some = [_renumbered(each, number) for each in (cohort, test)]
    return some[0], some[1], f"on the {MOST_CODES:,} commonest codes of the real patients"


def _renumbered(histories: Histories, number: NDArray[np.int64]) -> Histories:
    """With the codes that have a number, by it."""
    visits, static = (
        Records.from_pairs(each.rows()[kept], number[each.indices[kept]], len(each), MOST_CODES)
        for each in (histories.visits, histories.static)
        for kept in [number[each.indices] >= 0]
    )
    return Histories(visits, histories.offsets, histories.gaps, static)


def _on_commonest(measure: Measure) -> Measure:
    """The same measurement, whose cost does not grow with the vocabulary."""

    def measured(cohort: Histories, test: Histories, rng: np.random.Generator) -> Measurement:
        some, real, remark = _commonest(cohort, test)
        found = measure(some, real, rng)
        return found if remark is None or found.absent is not None else found.noting(remark)

    return measured


def _fitted(x: csr_array, y: csr_array | Floats) -> Floats:
    """Weights of a ridge regression, (F, ...)."""
    gram = np.asarray((x.T @ x).todense(), dtype=np.float64)
    product = x.T @ y
    dense = product if isinstance(product, np.ndarray) else product.todense()
    return np.asarray(np.linalg.solve(gram + RIDGE * np.eye(len(gram)), dense), dtype=np.float64)


def next_codes(cohort: Histories, test: Histories, rng: np.random.Generator) -> tuple[Floats, Records, Floats]:
    """(scores of the codes at the next visit (V, N), the codes that were there, the group of each visit), of the test's
    visits that another one follows, by what the cohort teaches."""
    learn, tried = _some(cohort, rng), _some(test, rng)
    rows = _followed(learn)
    weights = _fitted(features(learn)[rows], learn.visits.take(rows + 1).to_csr(np.float64))
    asked = _followed(tried)
    scores = np.asarray(features(tried)[asked] @ weights)
    groups = group_of(tried, rng)[tried.patients()[asked]]
    return scores, tried.visits.take(asked + 1), groups.astype(np.float64)


def measure_recall(cohort: Histories, test: Histories, rng: np.random.Generator) -> Measurement:
    """The share of the next visit's codes among the ten that are thought most likely, mean over visits."""
    if (reason := too_few(cohort, test)) is not None:
        return Measurement(absent=reason)
    if len(_followed(cohort)) == 0 or len(_followed(test)) == 0:
        return Measurement(absent="nobody has a second visit")
    scores, truth, groups = next_codes(cohort, test, rng)
    best = np.argpartition(-scores, min(TOP, scores.shape[1]) - 1, axis=1)[:, :TOP]
    hit = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(hit, best, True, axis=1)
    found = np.bincount(truth.rows(), weights=hit[truth.rows(), truth.indices], minlength=len(truth))
    recall = found / np.maximum(np.minimum(truth.sizes(), TOP), 1)
    counted = truth.sizes() > 0

    def statistic(left_out: int | None) -> float | None:
        kept = recall[counted & (groups != (-1 if left_out is None else left_out))]
        return float(kept.mean()) if len(kept) else None

    return jackknifed(statistic, BOUNDS, len(cohort), "no visit that follows another has a code")


def measure_auroc(cohort: Histories, test: Histories, rng: np.random.Generator) -> Measurement:
    """The mean over codes of the AUROC of the code at the next visit."""
    if (reason := too_few(cohort, test)) is not None:
        return Measurement(absent=reason)
    if len(_followed(cohort)) == 0 or len(_followed(test)) == 0:
        return Measurement(absent="nobody has a second visit")
    scores, truth, groups = next_codes(cohort, test, rng)
    there = truth.to_dense() > 0
    codes = np.flatnonzero((there.sum(axis=0) >= FEWEST_POSITIVES) & ((~there).sum(axis=0) >= FEWEST_POSITIVES))
    if len(codes) == 0:
        return Measurement(absent="no code is at enough visits that follow others")
    placed = _placements(scores[:, codes], there[:, codes])
    kinds = (there[:, codes], ~there[:, codes])
    sums = [_by_group(placed * kind, groups) for kind in kinds]  # (G, C)
    counts = [_by_group(kind, groups) for kind in kinds]
    area = sums[0].sum(axis=0) / counts[0].sum(axis=0)

    def statistic(left_out: int | None) -> float:
        means = [
            without(total, left_out) / np.maximum(without(n, left_out), 1)
            for total, n in zip(sums, counts, strict=True)
        ]
        return float((means[0] + means[1] - area).mean())

    return jackknifed(statistic, BOUNDS, len(cohort), "no code is at enough visits that follow others")


def _placements(scores: Floats, there: NDArray[np.bool_]) -> Floats:
    """For each visit and code the share of visits of the other kind (with the code, or without) that it is ranked
    rightly beside, (V, C). Their mean over visits with the code is the AUROC, and so is that over the others; leaving
    out visits changes it by their part in both means (DeLong), without ranking again."""
    ranks = stats.rankdata(scores, axis=0)
    among = [stats.rankdata(np.where(kind, scores, np.inf), axis=0) for kind in (there, ~there)]
    with_code = np.maximum(there.sum(axis=0), 1)
    others_below = (ranks - np.where(there, among[0], among[1])) / np.where(there, len(there) - with_code, with_code)
    return np.asarray(np.where(there, others_below, 1 - others_below), dtype=np.float64)


def _by_group(amounts: Floats | NDArray[np.bool_], groups: Floats) -> Floats:
    """Sums over the visits of each group, (G, C)."""
    member = groups.astype(np.int64) == np.arange(N_GROUPS)[:, None]
    return np.asarray(member.astype(np.float64) @ amounts)


def measure_readmission(cohort: Histories, test: Histories, rng: np.random.Generator) -> Measurement:
    """AUROC of another visit within 30 days, over all visits."""
    if (reason := too_few(cohort, test)) is not None:
        return Measurement(absent=reason)
    learn, tried = _some(cohort, rng), _some(test, rng)
    scores = np.asarray(features(tried) @ _fitted(features(learn), _soon(learn).astype(np.float64)))
    soon, groups = _soon(tried), group_of(tried, rng)[tried.patients()]

    def statistic(left_out: int | None) -> float | None:
        kept = groups != (-1 if left_out is None else left_out)
        curve = Ranking.of(soon[kept], scores[kept]).curve()
        return AUROC.area(curve) if 0 < soon[kept].sum() < kept.sum() else None

    return jackknifed(statistic, BOUNDS, len(cohort), f"no visit follows another within {READMITTED_WITHIN} days")


def _soon(histories: Histories) -> NDArray[np.bool_]:
    """Which visits another one follows within READMITTED_WITHIN days, (V,)."""
    rows = _followed(histories)
    soon = np.zeros(len(histories.visits), dtype=bool)
    soon[rows] = histories.gaps[rows + 1] <= READMITTED_WITHIN
    return soon


def _metric(name: str, title: str, meaning: str, measure: Measure) -> HistoryMetric:
    return HistoryMetric(
        name=name,
        title=title,
        direction="higher",
        bounds=BOUNDS,
        meaning=meaning,
        rule=between_yardsticks("higher", good_within=0.02, fail_beyond=0.1, worse="shuffled"),
        words=Words(
            good="What synthetic patients teach about the next visit is as good as what real ones teach.",
            caution="Synthetic patients teach somewhat less about the next visit than real ones.",
            fail="Synthetic patients teach little about the next visit.",
            unsure="There are too few patients to tell what synthetic ones teach about the next visit.",
            advice="Do not train predictions of the course of disease on the cohort alone.",
        ),
        measure=_on_commonest(measure),
    )


NEXT_RECALL = _metric(
    "next_recall_10",
    "Next visit, recall at 10",
    "Of the codes of a real patient's next visit, the share among the ten that a predictor trained on the cohort "
    "thinks most likely.",
    measure_recall,
)
NEXT_AUROC = _metric(
    "next_auroc",
    "Next visit, AUROC",
    "How well a predictor trained on the cohort ranks real visits by whether a code is at the next one (0.5 = chance).",
    measure_auroc,
)
READMISSION = _metric(
    "readmission_auroc",
    "Back within 30 days, AUROC",
    "How well a predictor trained on the cohort ranks real visits by whether the patient is back within 30 days.",
    measure_readmission,
)
