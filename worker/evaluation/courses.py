"""The data of pictures of patients over time: of a cohort by itself, and beside real patients."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ehr.codes.systems import domain_of, split_code
from ehr.courses import (
    AgeOnset,
    AgeOnsetBeside,
    AgePair,
    AgePoint,
    Courses,
    CoursesBeside,
    Onset,
    OnsetBeside,
    OnsetPair,
    OnsetPoint,
    SpanPair,
    SpanShare,
    Timeline,
    TimelineCode,
)
from ehr.disclosure import large_bins
from ehr.histories import Histories
from ehr.vocabulary import Vocabulary
from worker.engine.metrics.measurement import SMALLEST_SLICE
from worker.engine.metrics.time.ks import gaps_of, visits_of
from worker.engine.metrics.time.onset import onsets
from worker.engine.metrics.time.onset_age import first_ages

Ints = NDArray[np.int64]
GAPS = (1, 8, 31, 91, 181, 366, 731, 1826)  # where bins of days begin
VISITS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 31, 41, 61, 101)  # and bins of numbers of visits
SINCE = (7, 14, 30, 60, 90, 120, 180, 270, 365, 545, 730, 1095, 1460, 1825, 2555, 3650)  # days of points of curves
ICD10_OTHERS = ("R", "V", "W", "X", "Y", "Z")
NO_DISEASES = {"ICD10CM": ICD10_OTHERS, "ICD10": ICD10_OTHERS, "ICD9DX": ("V", "E", "78", "79")}
AGES = (*range(5, 100, 5), 125)  # years at which curves have points
TIMELINES, MOST_VISITS, MOST_CODES = 6, 40, 6  # patients that are drawn; visits and codes of each
KINDS = "VISIT:"  # that a visit is of a kind is no event
CURVES, FEWEST = 4, 100  # pairs of codes that are drawn, and diseases; patients who must have one
SHOWN_PATIENTS = 2_000  # whose pairs of codes are looked at,
MOST_PAIRS = 5_000_000  # and how many of those are held in memory


@dataclass
class CourseTally:
    """Of a cohort, which comes in blocks because it may be large."""

    vocabulary: Vocabulary
    patients: int = 0
    gaps: Ints = field(default_factory=lambda: np.zeros(len(GAPS), np.int64))
    visits: Ints = field(default_factory=lambda: np.zeros(len(VISITS), np.int64))
    total: int = 0  # visits
    first: list[Histories] = field(default_factory=list)

    def add(self, block: Histories) -> None:
        kept = sum(len(each) for each in self.first)
        if kept < SHOWN_PATIENTS:
            self.first.append(block.take(np.arange(min(len(block), SHOWN_PATIENTS - kept))))
        self.patients += len(block)
        self.total += len(block.visits)
        self.gaps += _binned(gaps_of(block)[0], GAPS)
        self.visits += _binned(visits_of(block)[0], VISITS)

    def described(self) -> Courses:
        shown = Histories.concatenate(self.first) if self.first else None
        return Courses(
            visits_per_patient=self.total / max(self.patients, 1),
            timelines=[] if shown is None else timelines(shown, self.vocabulary),
            gaps=_shares(self.gaps, GAPS),
            visits=_shares(self.visits, VISITS),
            onsets=[] if shown is None else _onsets(shown, self.vocabulary),
            ages=[] if shown is None else _ages(shown, self.vocabulary),
        )


def courses_beside(cohort: Histories, real: Histories, vocabulary: Vocabulary) -> CoursesBeside:
    """Of patients who may be compared; without enough real ones only what synthetic ones are like."""
    shown = timelines(cohort, vocabulary)
    if len(real) < SMALLEST_SLICE or len(cohort) == 0:
        return CoursesBeside(timelines=shown)
    return CoursesBeside(
        timelines=shown,
        gaps=_pairs(gaps_of(cohort), gaps_of(real), GAPS),
        visits=_pairs(visits_of(cohort), visits_of(real), VISITS),
        onsets=_onsets_beside(cohort, real, vocabulary),
        ages=_ages_beside(cohort, real, vocabulary),
    )


def codes_in(courses: Courses | CoursesBeside) -> Iterator[str]:
    """The codes that pictures of these show."""
    for timeline in courses.timelines:
        yield from timeline.static
        yield from (each.code for each in timeline.codes)
    for onset in courses.onsets:
        yield from (onset.first, onset.then)
    yield from (each.code for each in courses.ages)


def timelines(histories: Histories, vocabulary: Vocabulary) -> list[Timeline]:
    """The first patients who come more than once."""
    chosen = np.flatnonzero(histories.visit_counts() > 1)[:TIMELINES]
    return [_timeline(histories.take([patient]), vocabulary) for patient in chosen]


def _timeline(patient: Histories, vocabulary: Vocabulary) -> Timeline:
    days = patient.days()[:MOST_VISITS]
    visits = patient.visits.take(np.arange(len(days)))
    events = [code for code in np.unique(visits.indices) if not vocabulary.codes[code].startswith(KINDS)]
    at = {int(code): np.flatnonzero(visits.having_any([code])) for code in events}
    often = sorted(at, key=lambda code: (-len(at[code]), at[code][0]))[:MOST_CODES]
    return Timeline(
        static=[vocabulary.codes[code] for code in patient.static.indices],
        days=days.tolist(),
        visits=len(patient.visits),
        codes=[
            TimelineCode(code=vocabulary.codes[code], days=days[at[code]].tolist())
            for code in sorted(often, key=lambda code: at[code][0])
        ],
    )


def _binned(amounts: Ints, begins: Sequence[int]) -> Ints:
    """How many are in each bin, (bins,)."""
    return np.bincount(np.searchsorted(begins, amounts, side="right") - 1, minlength=len(begins))


def _last(begins: Sequence[int], place: int) -> int | None:
    return begins[place + 1] - 1 if place + 1 < len(begins) else None


def _shares(counts: Ints, begins: Sequence[int]) -> list[SpanShare]:
    shares = counts / max(counts.sum(), 1)
    spans = [SpanShare(first=begin, last=_last(begins, i), synthetic=shares[i]) for i, begin in enumerate(begins)]
    return spans if counts.any() else []


def _pairs(ours: tuple[Ints, Ints], real: tuple[Ints, Ints], begins: Sequence[int]) -> list[SpanPair]:
    """(amounts, patient of each) of both sides. No bin has 1 to 10 real patients in it."""
    in_bin = np.searchsorted(begins, real[0], side="right") - 1
    who = np.unique(real[1] * len(begins) + in_bin) % len(begins)
    bins = large_bins(np.bincount(who, minlength=len(begins)))
    synthetic, actual = (_binned(each[0], begins) / max(len(each[0]), 1) for each in (ours, real))
    return [
        SpanPair(
            first=begins[a],
            last=_last(begins, b),
            synthetic=synthetic[a : b + 1].sum(),
            real=actual[a : b + 1].sum(),
        )
        for a, b in bins
    ]


def _curves(histories: Histories, fewest: int) -> dict[tuple[int, int], Ints]:
    """Days from the one to the other of the commonest ordered pairs of codes; a code is in one pair at most."""
    pairs, days, _ = onsets(histories)
    found, counts = np.unique(pairs, return_counts=True)
    curves: dict[tuple[int, int], Ints] = {}
    for place in np.argsort(-counts, kind="stable"):
        pair = (int(found[place]) // histories.n_codes, int(found[place]) % histories.n_codes)
        if counts[place] < fewest or len(curves) == CURVES:
            break
        if not any(set(pair) & set(other) for other in curves):
            curves[pair] = days[pairs == found[place]]
    return curves


def _without_kinds(histories: Histories, vocabulary: Vocabulary) -> Histories:
    """The first patients, without what kind each visit is."""
    some = histories.take(np.arange(min(len(histories), SHOWN_PATIENTS)))
    enough = np.searchsorted(np.cumsum(np.square(some.ever().sizes())), MOST_PAIRS, side="right")
    some = some.take(np.arange(enough))
    events = np.array([not code.startswith(KINDS) for code in vocabulary.codes], dtype=bool)
    kept = events[some.visits.indices]
    visits = some.visits.from_pairs(some.visits.rows()[kept], some.visits.indices[kept], len(some.visits), some.n_codes)
    return Histories(visits, some.offsets, some.gaps, some.static)


def _onsets(histories: Histories, vocabulary: Vocabulary) -> list[Onset]:
    curves = _curves(_without_kinds(histories, vocabulary), FEWEST)
    return [
        Onset(
            first=vocabulary.codes[first],
            then=vocabulary.codes[then],
            points=[OnsetPoint(days=day, synthetic=float((days <= day).mean())) for day in SINCE],
        )
        for (first, then), days in curves.items()
    ]


def _onsets_beside(cohort: Histories, real: Histories, vocabulary: Vocabulary) -> list[OnsetBeside]:
    curves = _curves(_without_kinds(real, vocabulary), FEWEST)
    pairs, days, _ = onsets(_without_kinds(cohort, vocabulary))
    shown = []
    for (first, then), real_days in curves.items():
        ours = days[pairs == first * cohort.n_codes + then]
        steps = np.array([0, *SINCE, np.iinfo(np.int64).max])
        counts = np.array([((real_days > a) & (real_days <= b)).sum() for a, b in pairwise(steps)])
        ends = [SINCE[last] for _, last in large_bins(counts) if last < len(SINCE)]
        points = [
            OnsetPair(
                days=day,
                synthetic=float((ours <= day).mean()) if len(ours) else 0.0,
                real=float((real_days <= day).mean()),
            )
            for day in ends
        ]
        shown.append(OnsetBeside(first=vocabulary.codes[first], then=vocabulary.codes[then], points=points))
    return [each for each in shown if len(each.points) > 1]


def _ages_of(histories: Histories, vocabulary: Vocabulary) -> dict[int, Ints]:
    """The ages at which each disease comes first, of those that enough patients have, the commonest first."""
    code, age, _ = first_ages(histories, vocabulary.codes)
    counts = np.bincount(code, minlength=len(vocabulary))
    common = [place for place in np.argsort(-counts, kind="stable").tolist() if counts[place] >= FEWEST]
    return {place: age[code == place] for place in common if _is_disease(vocabulary.codes[place])}


def _is_disease(name: str) -> bool:
    """A condition that is no examination, vaccination, symptom or cause of an accident."""
    system, code = split_code(name)
    return domain_of(system) == "condition" and not code.startswith(NO_DISEASES.get(system, ()))


def _ages(histories: Histories, vocabulary: Vocabulary) -> list[AgeOnset]:
    shown = list(_ages_of(histories, vocabulary).items())[:CURVES]
    return [
        AgeOnset(
            code=vocabulary.codes[place],
            points=[AgePoint(age=age, synthetic=float((ages < age).mean())) for age in AGES[:-1]],
        )
        for place, ages in shown
    ]


def _ages_beside(cohort: Histories, real: Histories, vocabulary: Vocabulary) -> list[AgeOnsetBeside]:
    code, age, _ = first_ages(cohort, vocabulary.codes)
    shown = []
    for place, real_ages in list(_ages_of(real, vocabulary).items())[:CURVES]:
        ours = age[code == place]
        counts = np.array([((real_ages >= a) & (real_ages < b)).sum() for a, b in pairwise((0, *AGES))])
        points = [
            AgePair(
                age=AGES[last],
                synthetic=float((ours < AGES[last]).mean()) if len(ours) else 0.0,
                real=float((real_ages < AGES[last]).mean()),
            )
            for _, last in large_bins(counts)
            if last < len(AGES) - 1
        ]
        shown.append(AgeOnsetBeside(code=vocabulary.codes[place], points=points))
    return [each for each in shown if len(each.points) > 1]
