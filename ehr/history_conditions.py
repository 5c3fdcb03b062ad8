"""Which patients over time are asked for: codes they ever, never or at some visit have, in which order, how many visits
over how many days, who they are at the start, and which visits they begin with.

`AskedHistoryCondition` is what a person wrote; `HistoryCondition` is the same in indices of one vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from ehr.codes.systems import is_about_patient
from ehr.conditions import MOST_TERMS, AskedCondition, Condition
from ehr.errors import ConditionError
from ehr.fields import Code
from ehr.histories import NEVER, Histories, first_visits
from ehr.records import Records, indptr_of
from ehr.vocabulary import Vocabulary

MOST_VISITS = 10_000
MOST_DAYS = 100_000
MOST_SAID = 3  # codes in a sentence


class AskedVisit(AskedCondition):
    """What a patient's visit of that number, counted from 1, has."""

    visit: int = Field(ge=1, le=MOST_VISITS)


class AskedOrder(BaseModel):
    """The first visit with `first` comes before the first with `then`, and there are both."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: Code
    then: Code


class AskedPromptVisit(BaseModel):
    """A visit that is given, so many days after the one before."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    codes: list[Code] = Field(default_factory=list, max_length=MOST_TERMS)
    gap_days: int = Field(0, ge=0, le=MOST_DAYS)


class AskedHistoryCondition(BaseModel):
    """Every code of `ever` at some visit, none of `never` at any. A wildcard means one of the codes it matches."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ever: list[Code] = Field(default_factory=list, max_length=MOST_TERMS)
    never: list[Code] = Field(default_factory=list, max_length=MOST_TERMS)
    at_visit: list[AskedVisit] = Field(default_factory=list, max_length=MOST_TERMS)
    before: list[AskedOrder] = Field(default_factory=list, max_length=8)
    fewest_visits: int = Field(1, ge=1, le=MOST_VISITS)
    most_visits: int | None = Field(None, ge=1, le=MOST_VISITS)
    shortest_days: int = Field(0, ge=0, le=MOST_DAYS, description="from the first visit to the last, at least")
    longest_days: int | None = Field(None, ge=0, le=MOST_DAYS, description="and at most")
    start: AskedCondition = Field(default_factory=AskedCondition, description="sex, age band and what else is static")
    prompt: list[AskedPromptVisit] = Field(
        default_factory=list, max_length=MOST_TERMS, description="the first visits; at least one more follows"
    )

    @property
    def patterns(self) -> list[str]:
        """Every code and wildcard that it names."""
        found = [*self.ever, *self.never, *(code for each in self.before for code in (each.first, each.then))]
        found += [code for each in (*self.at_visit, self.start) for code in each.patterns]
        return [*found, *(code for visit in self.prompt for code in visit.codes)]

    def as_written(self, vocabulary: Vocabulary) -> "AskedHistoryCondition":
        """The same as the vocabulary spells it; UnknownCodeError if a code means nothing or several things."""

        def condition(asked: AskedCondition) -> dict[str, object]:
            return vocabulary.as_written(asked).model_dump(include=set(AskedCondition.model_fields))

        def code(pattern: str) -> str:
            return vocabulary.as_written_each([pattern])[0]

        return self.model_copy(
            update={
                "ever": vocabulary.as_written_each(self.ever),
                "never": vocabulary.as_written_each(self.never),
                "before": [AskedOrder(first=code(each.first), then=code(each.then)) for each in self.before],
                "at_visit": [AskedVisit(visit=each.visit, **condition(each)) for each in self.at_visit],
                "start": vocabulary.as_written(self.start),
                "prompt": [
                    AskedPromptVisit(codes=vocabulary.as_written_each(each.codes), gap_days=each.gap_days)
                    for each in self.prompt
                ],
            }
        )

    def resolve(self, vocabulary: Vocabulary) -> "HistoryCondition":
        """Patterns to indices; UnknownCodeError or ConditionError where that cannot be."""
        visits = [codes_of_visits(vocabulary, "prompt", visit.codes) for visit in self.prompt]
        for each in self.at_visit:
            codes_of_visits(vocabulary, "at_visit", each.patterns)

        def order(pattern: str) -> frozenset[int]:
            return codes_of_visits(vocabulary, "before", [pattern])

        return HistoryCondition(
            len(vocabulary),
            ever=tuple(codes_of_visits(vocabulary, "ever", [pattern]) for pattern in self.ever),
            never=codes_of_visits(vocabulary, "never", self.never),
            at_visit=tuple((each.visit, vocabulary.resolve(each)) for each in self.at_visit),
            before=tuple(
                (
                    codes_of_visits(vocabulary, "before", [each.first]),
                    codes_of_visits(vocabulary, "before", [each.then]),
                )
                for each in self.before
            ),
            visits=(self.fewest_visits, self.most_visits),
            days=(self.shortest_days, self.longest_days),
            start=self._resolved_start(vocabulary),
            prompt=prompt_of(visits, [visit.gap_days for visit in self.prompt], len(vocabulary)) if visits else None,
            names=vocabulary.codes,
        )

    def _resolved_start(self, vocabulary: Vocabulary) -> Condition:
        """ConditionError for a code of visits, where there are others that say who a patient is."""
        if self.start.is_empty:
            return Condition(len(vocabulary))
        static = {number for number, code in enumerate(vocabulary.codes) if is_about_patient(code)}
        for pattern in self.start.patterns:
            if static and not static & set(vocabulary.matching(pattern)):
                raise ConditionError(
                    f"start: '{pattern}' is a code of visits and does not say who a patient is: ask for it in `ever`,"
                    " or in `at_visit` at visit 1"
                )
        return vocabulary.resolve(self.start)


def codes_of_visits(vocabulary: Vocabulary, named: str, patterns: Iterable[str]) -> frozenset[int]:
    """The codes that any of the patterns of the field `named` matches; ConditionError for a pattern that matches only
    what is true of a patient at every visit, which is no code of a visit."""
    found: set[int] = set()
    for pattern in patterns:
        codes = {code for code in vocabulary.matching(pattern) if not is_about_patient(vocabulary.codes[code])}
        if not codes:
            raise ConditionError(f"{named}: '{pattern}' says who a patient is, at every visit: ask for it in `start`")
        found |= codes
    return frozenset(found)


def prompt_of(visits: Iterable[Iterable[int]], gaps: Iterable[int], n_codes: int) -> Histories:
    """One patient's first visits; the gap of the first does not count."""
    records, days = Records.from_sets(visits, n_codes), np.array(list(gaps), dtype=np.int32)
    days[:1] = 0
    return Histories(records, indptr_of(np.array([len(records)])), days, Records.from_sets([[]], n_codes))


@dataclass(frozen=True)
class HistoryCondition:
    """What a patient must be. Contradictions are refused when it is made."""

    n_codes: int
    ever: tuple[frozenset[int], ...] = ()  # one code of each set at some visit
    never: frozenset[int] = frozenset()
    at_visit: tuple[tuple[int, Condition], ...] = ()  # visits are counted from 1
    before: tuple[tuple[frozenset[int], frozenset[int]], ...] = ()  # first visits with either set, in this order
    visits: tuple[int, int | None] = (1, None)
    days: tuple[int, int | None] = (0, None)  # from the first visit to the last
    start: Condition | None = None  # on static codes
    prompt: Histories | None = None  # one patient: the first visits; static codes may be left open
    names: Sequence[str] = field(default=(), compare=False, repr=False)  # of codes, for whoever reads an error

    def __post_init__(self) -> None:
        for codes in self._asked_sets():
            if not codes - self.never:
                raise ConditionError(f"{self._said(codes)} must be there at some visit and must never be there")
        for first, then in self.before:
            if first <= then:
                raise ConditionError(f"{self._said(first)} cannot come before codes that it is among")
        if self._longest_order() > len(self.before) + 1:
            raise ConditionError("the orders that are asked for go round in a circle: no patient can have all of them")
        if self.visits[1] is not None and self._longest_order() > self.visits[1]:
            raise ConditionError(f"codes in order need more visits than {self.visits[1]}")
        for number, condition in self.at_visit:
            if self.visits[1] is not None and number > self.visits[1]:
                raise ConditionError(f"visit {number} is asked for, but patients have {self.visits[1]} at most")
            if condition.all_of & self.never or any(group <= self.never for group in condition.any_of):
                raise ConditionError(f"visit {number} must have a code that the patient must never have")
        for name, (least, most) in {"visits": self.visits, "days": self.days}.items():
            if most is not None and least > most:
                raise ConditionError(f"at least {least} and at most {most} {name} cannot be")
        self._check_prompt()

    def _asked_sets(self) -> list[frozenset[int]]:
        """Of each, one code must be there at some visit."""
        return [*self.ever, *(codes for pair in self.before for codes in pair)]

    def _said(self, codes: Iterable[int]) -> str:
        named = [f"'{self.names[code]}'" if self.names else f"code {code}" for code in sorted(codes)]
        return " or ".join(named[:MOST_SAID]) + (" or others" if len(named) > MOST_SAID else "")

    def _longest_order(self) -> int:
        """How many different visits the longest chain of orders needs; 1 without any, more than there are orders and
        one if they contradict each other."""
        place = {codes: 1 for pair in self.before for codes in pair}
        for _ in range(len(self.before) + 1):
            for first, then in self.before:
                place[then] = max(place[then], place[first] + 1)
        return max(place.values(), default=1)

    def _check_prompt(self) -> None:
        prompt, most = self.prompt, self.visits[1]
        if prompt is None:
            return
        if len(prompt) != 1 or prompt.n_codes != self.n_codes:
            raise ConditionError("a prompt is the visits of one patient, in the same vocabulary")
        if most is not None and len(prompt.visits) >= most:
            raise ConditionError(
                f"{len(prompt.visits)} visits are given and one more follows, but at most {most} may be"
            )
        if np.any(prompt.gaps[1:] < 1):
            raise ConditionError(
                "a visit that is given comes at least 1 day after the one before: visits of one day are one"
            )
        if self.never & set(prompt.visits.indices.tolist()):
            raise ConditionError("a visit that is given has a code that the patient must never have")

    @property
    def is_empty(self) -> bool:
        """Whether every patient satisfies it."""
        return self == HistoryCondition(self.n_codes, start=self.start) and (self.start is None or self.start.is_empty)

    @property
    def fewest_visits(self) -> int:
        """That a patient needs for the numbers that are named; codes may need more."""
        given = 0 if self.prompt is None else len(self.prompt.visits) + 1
        return max(self.visits[0], given, self._longest_order(), *(number for number, _ in self.at_visit), 1)

    def at_visits(self) -> Iterator[Condition]:
        """What is asked of single visits, each with who the patient is."""
        start = self.start or Condition(self.n_codes)
        alone = [Condition.of(self.n_codes, any_of=[codes]) for codes in self._asked_sets()]
        given = [] if self.prompt is None else [self.prompt.visits.take([i]) for i in range(len(self.prompt.visits))]
        alone += [Condition.of(self.n_codes, visit.indices.tolist()) for visit in given]
        for visit in (*alone, *(condition for _, condition in self.at_visit)):
            yield Condition.of(
                self.n_codes,
                visit.all_of | start.all_of,
                (*visit.any_of, *start.any_of),
                visit.none_of - start.all_of,
            )

    def satisfied_by(self, histories: Histories) -> NDArray[np.bool_]:
        """Which patients satisfy the condition, (P,)."""
        counts, days = histories.visit_counts(), histories.days()[histories.offsets[1:] - 1]
        met = np.ones(len(histories), dtype=bool)
        for amount, (least, most) in ((counts, self.visits), (days, self.days)):
            met &= (amount >= least) & (amount <= (NEVER if most is None else most))
        for codes in self.ever:
            met &= first_visits(histories, codes) < NEVER
        met &= first_visits(histories, self.never) == NEVER
        for first, then in self.before:
            b = first_visits(histories, then)
            met &= (first_visits(histories, first) < b) & (b < NEVER)
        for number, condition in self.at_visit:
            long_enough = np.flatnonzero(met & (counts >= number))
            at = histories.visits.take(histories.offsets[long_enough] + number - 1)
            met &= False
            met[long_enough] = condition.satisfied_by(at)
        if self.start is not None:
            met &= self.start.satisfied_by(histories.static)
        return met & self._begins_as_given(histories)

    def _begins_as_given(self, histories: Histories) -> NDArray[np.bool_]:
        prompt = self.prompt
        met = np.ones(len(histories), dtype=bool)
        if prompt is None:
            return met
        for code in prompt.static.indices.tolist():
            met &= histories.static.having_any([code])
        met &= histories.visit_counts() > len(prompt.visits)
        for number in range(len(prompt.visits)):
            rows = np.flatnonzero(met)
            at = histories.offsets[rows] + number
            given = prompt.visits.take(np.full(len(rows), number))
            same = _same(histories.visits.take(at), given) & (histories.gaps[at] == prompt.gaps[number])
            met[rows] = same
        return met


def _same(a: Records, b: Records) -> NDArray[np.bool_]:
    """Which records are equal, row by row."""
    same: NDArray[np.bool_] = a.sizes() == b.sizes()
    rows = np.flatnonzero(same)
    left, right = a.take(rows), b.take(rows)
    different = np.bincount(left.rows(), weights=left.indices != right.indices, minlength=len(rows))
    same[rows] = different == 0
    return same
