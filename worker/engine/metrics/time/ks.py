"""Do patients come as often, and after as many days, as real ones? Kolmogorov-Smirnov distances."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from ehr.histories import Histories
from worker.engine.metrics.measurement import Bounds, HistoryMetric, Measurement, Words
from worker.engine.metrics.time.groups import group_of, jackknifed, too_few
from worker.engine.metrics.verdicts import Limits, near_yardstick

BOUNDS: Bounds = (0.0, 1.0)
LIMITS = Limits(good=0.03, sure=0.05, fail=0.1)


def ks_distance(a: NDArray[np.int64], b: NDArray[np.int64]) -> float | None:
    """The largest difference of the two cumulative distributions; None if either is empty."""
    if len(a) == 0 or len(b) == 0:
        return None
    values = np.unique(np.concatenate([a, b]))
    below = [np.searchsorted(np.sort(each), values, side="right") / len(each) for each in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def gaps_of(histories: Histories) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Days between visits, and the patient of each."""
    later = np.delete(np.arange(len(histories.gaps)), histories.offsets[:-1])
    return histories.gaps[later].astype(np.int64), histories.patients()[later]


def visits_of(histories: Histories) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Visits of each patient, and the patient."""
    return histories.visit_counts(), np.arange(len(histories))


def measure(what: str, cohort: Histories, test: Histories, rng: np.random.Generator) -> Measurement:
    if (reason := too_few(cohort, test)) is not None:
        return Measurement(absent=reason)
    find = gaps_of if what == "gap" else visits_of
    sets = [(find(each), group_of(each, rng)) for each in (cohort, test)]

    def statistic(left_out: int | None) -> float | None:
        kept = [
            amounts[groups[patients] != (-1 if left_out is None else left_out)] for (amounts, patients), groups in sets
        ]
        return ks_distance(kept[0], kept[1])

    return jackknifed(statistic, BOUNDS, len(cohort), "nobody has a second visit")


def _metric(name: str, what: str, title: str, meaning: str) -> HistoryMetric:
    return HistoryMetric(
        name=name,
        title=title,
        direction="lower",
        bounds=BOUNDS,
        meaning=meaning,
        rule=near_yardstick("floor", "lower", LIMITS),
        words=Words(
            good=f"{title}: as in real patients.",
            caution=f"{title}: somewhat different from real patients.",
            fail=f"{title}: quite different from real patients.",
            unsure=f"{title}: there are too few patients to tell whether they are as in real ones.",
            advice="Do not use the cohort for questions of timing or of use of care; train longer.",
        ),
        measure=partial(measure, what),
    )


GAP_KS = _metric(
    "gap_ks", "gap", "Days between visits", "The largest difference between the shares of gaps of up to so many days."
)
VISITS_KS = _metric(
    "visits_ks",
    "visits",
    "Visits per patient",
    "The largest difference between the shares of patients with up to so many visits.",
)
