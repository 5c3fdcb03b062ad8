"""At which age does a code come first? For the commonest codes.

Patients have an age band at their first visit, and days since. The middle of the band and the days make an age that is
off by half a band, in the same way for real and synthetic patients: enough to compare them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ehr.codes.systems import band_middle
from ehr.histories import Histories
from worker.engine.metrics.measurement import Bounds, HistoryMetric, Measurement, Words
from worker.engine.metrics.time.groups import group_of, jackknifed, too_few
from worker.engine.metrics.time.ks import LIMITS, ks_distance
from worker.engine.metrics.verdicts import near_yardstick

BOUNDS: Bounds = (0.0, 1.0)
MOST_CODES = 100
FEWEST_PATIENTS = 30  # who must have a code
DAYS_PER_YEAR = 365.25
UNKNOWN = -1
Ints = NDArray[np.int64]


def first_ages(histories: Histories, codes: Sequence[str]) -> tuple[Ints, Ints, Ints]:
    """(code, age in years at the patient's first visit with it, patient), for patients whose age is known."""
    middle = np.array([band_middle(code) or UNKNOWN for code in codes])
    at_start = np.full(len(histories), float(UNKNOWN))
    np.maximum.at(at_start, histories.static.rows(), middle[histories.static.indices])
    visits, days = histories.visits, histories.days()
    patient = histories.patients()[visits.rows()]
    key, first = np.unique(patient * visits.n_codes + visits.indices, return_index=True)  # visits are in order
    patient, code = key // visits.n_codes, key % visits.n_codes
    age = np.floor(at_start[patient] + days[visits.rows()[first]] / DAYS_PER_YEAR).astype(np.int64)
    known = at_start[patient] != UNKNOWN
    return code[known], age[known], patient[known]


def measure(cohort: Histories, test: Histories, rng: np.random.Generator, codes: Sequence[str]) -> Measurement:
    """The mean Kolmogorov-Smirnov distance over codes; 1 for a code that no synthetic patient has."""
    if (reason := too_few(cohort, test)) is not None:
        return Measurement(absent=reason)
    sets = [(*first_ages(each, codes), group_of(each, rng)) for each in (cohort, test)]
    counts = np.bincount(sets[1][0], minlength=len(codes))
    common = np.argsort(-counts, kind="stable")[:MOST_CODES]
    chosen = common[counts[common] >= FEWEST_PATIENTS]
    by_code = [[(age[code == each], groups[who[code == each]]) for each in chosen] for code, age, who, groups in sets]

    def statistic(left_out: int | None) -> float | None:
        distances = []
        for ours, real in zip(*by_code, strict=True):
            kept = [ages[groups != (-1 if left_out is None else left_out)] for ages, groups in (ours, real)]
            distance = ks_distance(kept[0], kept[1])
            distances.append(1.0 if distance is None else distance)
        return float(np.mean(distances)) if distances else None

    return jackknifed(statistic, BOUNDS, len(cohort), "no code comes first at a known age in enough patients")


ONSET_AGE = HistoryMetric(
    name="onset_age",
    title="Age at which codes come first",
    direction="lower",
    bounds=BOUNDS,
    meaning="For the commonest codes: how different the ages at the first visit with the code are from those of real "
    "patients (0 = not at all). Ages are the middle of the age band at the first visit and the time since.",
    rule=near_yardstick("floor", "lower", LIMITS),
    words=Words(
        good="Codes come first at the same ages as in real patients.",
        caution="Some codes come first at other ages than in real patients.",
        fail="The ages at which codes come first are not those of real patients.",
        unsure="There are too few patients to tell whether codes come first at the ages of real ones.",
        advice="Do not use the cohort for questions of age at onset; train longer.",
    ),
    measure=measure,
    needs_codes=True,
)
