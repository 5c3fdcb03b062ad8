"""The six R² of HALO: are codes, pairs within a visit and pairs in consecutive visits as common as in real patients?

Each is measured per visit (visits, or pairs of consecutive visits, that have it, over visits) and per record (patients
who ever have it). The variants without repetition leave out a code that is followed by itself, which says little.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ehr.histories import Histories
from ehr.records import Records
from worker.engine.metrics.intervals import N_GROUPS
from worker.engine.metrics.measurement import Bounds, HistoryMetric, Measurement, Words
from worker.engine.metrics.time.groups import Floats, group_of, jackknifed, too_few, without
from worker.engine.metrics.verdicts import between_yardsticks

BOUNDS: Bounds = (None, 1.0)
PATIENTS_AT_ONCE = 2000  # their pairs are held in memory
Ints = NDArray[np.int64]


def codes_of(histories: Histories) -> tuple[Ints, Ints]:
    """(visit, code) of everything that is there."""
    return histories.visits.rows(), histories.visits.indices.astype(np.int64)


def pairs_within(histories: Histories) -> tuple[Ints, Ints]:
    """(visit, pair) of every two codes of a visit, the smaller one first."""
    rows, a, b = _products(histories.visits, histories.visits)
    kept = a < b
    return rows[kept], a[kept] * histories.n_codes + b[kept]


def pairs_across(histories: Histories, repeats: bool = True) -> tuple[Ints, Ints]:
    """(visit, pair) of every code and every code of the patient's next visit."""
    rows = np.delete(np.arange(len(histories.visits)), histories.offsets[1:] - 1)
    at, a, b = _products(histories.visits.take(rows), histories.visits.take(rows + 1))
    kept = np.full(len(a), True) if repeats else a != b
    return rows[at[kept]], a[kept] * histories.n_codes + b[kept]


def _products(left: Records, right: Records) -> tuple[Ints, Ints, Ints]:
    """(row, code of the left record, code of the right one) for all codes of records side by side."""
    sizes = right.sizes()[left.rows()]
    a = np.repeat(left.indices.astype(np.int64), sizes)
    rows = np.repeat(left.rows(), sizes)
    place = np.arange(len(a)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rows, a, right.indices[right.indptr[rows] + place].astype(np.int64)


Find = Callable[[Histories], tuple[Ints, Ints]]


@dataclass(frozen=True)
class Counts:
    """How often every key was found in each group, and of how many visits and patients, by group."""

    keys: Ints  # (K,) ascending
    per_visit: Floats  # (G, K)
    per_record: Floats  # (G, K)
    visits: Floats  # (G,)
    patients: Floats  # (G,)

    @classmethod
    def of(cls, histories: Histories, find: Find, groups: Ints) -> "Counts":
        found = [_counted(histories, find, groups, first) for first in range(0, len(histories), PATIENTS_AT_ONCE)]
        keys = np.unique(np.concatenate([part[0] for part in found]) % (histories.n_codes**2))
        tables = [np.zeros((N_GROUPS, len(keys))) for _ in range(2)]
        for key, *counts in found:
            group, place = key // histories.n_codes**2, np.searchsorted(keys, key % histories.n_codes**2)
            for table, count in zip(tables, counts, strict=True):
                table[group, place] += count
        visits = np.bincount(groups, weights=histories.visit_counts().astype(np.float64), minlength=N_GROUPS)
        patients = np.bincount(groups, minlength=N_GROUPS).astype(np.float64)
        return cls(keys, tables[0], tables[1], visits.astype(np.float64), patients)

    def shares(self, keys: Ints, per: str, left_out: int | None) -> Floats:
        """The share of visits, or of patients, that have each of the keys."""
        counts, whole = (self.per_visit, self.visits) if per == "visit" else (self.per_record, self.patients)
        shares = np.zeros(len(keys))
        shares[np.searchsorted(keys, self.keys)] = without(counts, left_out) / without(whole, left_out)
        return shares


def _counted(histories: Histories, find: Find, groups: Ints, first: int) -> tuple[Ints, Floats, Floats]:
    """(group and key, visits that have it, patients who have it) among some patients."""
    patients = np.arange(first, min(first + PATIENTS_AT_ONCE, len(histories)))
    some = histories.take(patients)
    visits, keys = find(some)
    patient = some.patients()[visits]
    keys = groups[patients][patient] * histories.n_codes**2 + keys
    by_patient, times = np.unique(patient * (N_GROUPS * histories.n_codes**2) + keys, return_counts=True)
    found, place = np.unique(by_patient % (N_GROUPS * histories.n_codes**2), return_inverse=True)
    per_visit, per_record = (
        np.bincount(place, weights=weights, minlength=len(found)) for weights in (times, np.ones(len(times)))
    )
    return found, per_visit.astype(np.float64), per_record.astype(np.float64)


def r_squared(real: Floats, synthetic: Floats) -> float | None:
    """1 - the squared differences over those of the real values to their mean; None if the real ones are all equal."""
    spread = np.square(real - real.mean()).sum() if len(real) else 0.0
    return float(1 - np.square(real - synthetic).sum() / spread) if spread > 0 else None


def measure(find: Find, per: str, cohort: Histories, test: Histories, rng: np.random.Generator) -> Measurement:
    """R² over all keys that either set has."""
    if (reason := too_few(cohort, test)) is not None:
        return Measurement(absent=reason)
    ours, real = (Counts.of(each, find, group_of(each, rng)) for each in (cohort, test))
    keys = np.union1d(ours.keys, real.keys)

    def statistic(left_out: int | None) -> float | None:
        return r_squared(real.shares(keys, per, left_out), ours.shares(keys, per, left_out))

    return jackknifed(statistic, BOUNDS, len(cohort), "the real patients have nothing of the kind")


def _metric(name: str, what: str, find: Find, per: str) -> HistoryMetric:
    counted = "visits" if per == "visit" else "patients"
    return HistoryMetric(
        name=name,
        title=f"R², {what}, per {per}",
        direction="higher",
        bounds=BOUNDS,
        meaning=f"How well the shares of {counted} with each of the {what} agree with those of real patients (1 = "
        "exactly).",
        rule=between_yardsticks("higher", good_within=0.02, fail_beyond=0.2, worse="shuffled"),
        words=Words(
            good=f"The {what} are as common as in real patients.",
            caution=f"Some of the {what} are more or less common than in real patients.",
            fail=f"Many of the {what} are more or less common than in real patients.",
            unsure=f"There are too few patients to tell whether the {what} are as common as in real ones.",
            advice="Do not study courses of disease with the cohort; train longer.",
        ),
        measure=partial(measure, find, per),
    )


_KINDS: dict[str, tuple[str, Find]] = {
    "code": ("codes", codes_of),
    "pair": ("pairs within a visit", pairs_within),
    "next": ("pairs in consecutive visits", pairs_across),
}
SIX_R2 = tuple(
    _metric(f"r2_{kind}_{per}", what, find, per) for kind, (what, find) in _KINDS.items() for per in ("record", "visit")
)
NOREPEAT_R2 = tuple(
    _metric(
        f"r2_next_norepeat_{per}", "consecutive pairs of different codes", partial(pairs_across, repeats=False), per
    )
    for per in ("record", "visit")
)
