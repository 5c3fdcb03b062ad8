"""How long after the first A comes the first B? For the commonest pairs of codes in that order."""

import numpy as np
from numpy.typing import NDArray

from ehr.histories import Histories
from worker.engine.metrics.measurement import Bounds, HistoryMetric, Measurement, Words
from worker.engine.metrics.time.groups import group_of, jackknifed, too_few
from worker.engine.metrics.time.ks import ks_distance
from worker.engine.metrics.verdicts import between_yardsticks

BOUNDS: Bounds = (0.0, 1.0)
MOST_PAIRS = 200
MOST_PATIENTS = 4000  # all pairs of their codes are held in memory
FEWEST_PATIENTS = 30  # that a pair of codes needs
Ints = NDArray[np.int64]


def onsets(histories: Histories) -> tuple[Ints, Ints, Ints]:
    """(pair of codes, days between their first visits, patient), for all that come first at different visits."""
    visits, days = histories.visits, histories.days()
    patient = histories.patients()[visits.rows()]
    key, first = np.unique(patient * visits.n_codes + visits.indices, return_index=True)  # visits are in order
    patient, code, visit = key // visits.n_codes, key % visits.n_codes, visits.rows()[first]
    starts = np.searchsorted(patient, np.arange(len(histories)))
    counts = np.diff(np.append(starts, len(patient)))
    left = np.repeat(np.arange(len(patient)), counts[patient])
    place = np.arange(len(left)) - np.repeat(np.cumsum(counts[patient]) - counts[patient], counts[patient])
    right = starts[patient[left]] + place
    ordered = visit[left] < visit[right]
    left, right = left[ordered], right[ordered]
    return code[left] * visits.n_codes + code[right], days[visit[right]] - days[visit[left]], patient[left]


def measure(cohort: Histories, test: Histories, rng: np.random.Generator) -> Measurement:
    """The mean Kolmogorov-Smirnov distance over pairs; 1 for a pair that no synthetic patient has in that order."""
    if (reason := too_few(cohort, test)) is not None:
        return Measurement(absent=reason)
    sets = []
    for each in (cohort, test):
        some = each.take(rng.permutation(len(each))[:MOST_PATIENTS])
        sets.append((*onsets(some), group_of(some, rng)))
    pairs, counts = np.unique(sets[1][0], return_counts=True)
    chosen = np.argsort(-counts, kind="stable")[:MOST_PAIRS]
    chosen = pairs[chosen[counts[chosen] >= FEWEST_PATIENTS]]
    by_pair = [_by_pair(each, np.sort(chosen)) for each in sets]

    def statistic(left_out: int | None) -> float | None:
        distances = []
        for ours, real in zip(*by_pair, strict=True):
            kept = [days[groups != (-1 if left_out is None else left_out)] for days, groups in (ours, real)]
            distance = ks_distance(kept[0], kept[1])
            distances.append(1.0 if distance is None else distance)
        return float(np.mean(distances)) if distances else None

    return jackknifed(statistic, BOUNDS, len(cohort), "no two codes follow each other in enough patients")


def _by_pair(found: tuple[Ints, Ints, Ints, Ints], chosen: Ints) -> list[tuple[Ints, Ints]]:
    """(days, groups) of the patients who have each of the chosen pairs, which ascend."""
    pairs, days, patients, groups = found
    rows = np.flatnonzero(np.isin(pairs, chosen))
    rows = rows[np.argsort(pairs[rows], kind="stable")]
    ends = np.searchsorted(pairs[rows], chosen, side="right")[:-1]
    return list(zip(np.split(days[rows], ends), np.split(groups[patients[rows]], ends), strict=True))


ONSET = HistoryMetric(
    name="onset",
    title="Time from one code to another",
    direction="lower",
    bounds=BOUNDS,
    meaning="For the commonest ordered pairs of codes: how different the days between their first visits are from real "
    "patients (0 = not at all).",
    rule=between_yardsticks("lower", good_within=0.03, fail_beyond=0.2, worse="shuffled"),
    words=Words(
        good="Codes follow each other after as long a time as in real patients.",
        caution="Some codes follow each other sooner or later than in real patients.",
        fail="The time from one code to another is not that of real patients.",
        unsure="There are too few patients to tell whether codes follow each other as in real ones.",
        advice="Do not use the cohort for time-to-event studies; train longer.",
    ),
    measure=measure,
)
