"""The nearest thing that can be had when a condition cannot: the fewest terms to drop.

A term is what a person wrote: an entry of `all_of` or `none_of`, or a group of `any_of`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, Literal

from ehr.conditions import AskedCondition
from ehr.disclosure import SMALLEST_SHOWN, rounded
from ehr.errors import ConditionError, UnknownCodeError
from ehr.support import UNKNOWN, Requirement, Support, TrainingIndex
from ehr.vocabulary import Vocabulary

Field = Literal["all_of", "any_of", "none_of"]
FIELDS: tuple[Field, ...] = ("all_of", "any_of", "none_of")
MOST_TRIES = 1_100  # selections of terms that are counted before the search becomes greedy: all of ten terms


@dataclass(frozen=True)
class Term:
    """A term with those of its patterns that the vocabulary knows; without codes it cannot be kept."""

    field: Field
    patterns: tuple[str, ...]
    codes: tuple[int, ...]
    unknown: tuple[str, ...] = ()  # patterns beside them that no code matches

    @property
    def requirement(self) -> Requirement:
        return Requirement(self.codes, wanted=self.field != "none_of")


@dataclass(frozen=True)
class Relaxation:
    """A condition that can be had, ready to be sent, and what had to go for it."""

    conditions: AskedCondition
    dropped: list[dict[str, Any]]
    support: Support


def terms_of(vocabulary: Vocabulary, asked: AskedCondition) -> list[Term]:
    """What was written, term by term, with unknown codes left out."""
    written: list[tuple[Field, Sequence[str]]] = [
        *(("all_of", [pattern]) for pattern in asked.all_of),
        *(("any_of", group) for group in asked.any_of),
        *(("none_of", [pattern]) for pattern in asked.none_of),
    ]
    return [_term(vocabulary, field, patterns) for field, patterns in written]


def _term(vocabulary: Vocabulary, field: Field, patterns: Sequence[str]) -> Term:
    known, unknown, codes = [], [], set()
    for pattern in patterns:
        try:
            codes |= set(vocabulary.matching(pattern))
            known.append(pattern)
        except UnknownCodeError:
            unknown.append(pattern)
    return Term(field, tuple(known), tuple(sorted(codes)), tuple(unknown))


def nearest(vocabulary: Vocabulary, index: TrainingIndex | None, terms: Sequence[Term]) -> Relaxation:
    """The fewest terms dropped such that at least 11 training records satisfy the rest; of equally many the selection
    with most records. Without training records: such that the rest does not contradict itself."""
    usable = [term for term in terms if term.codes]
    parts = [term.requirement for term in usable]
    if index is None:
        kept = _search(
            len(usable), lambda chosen: SMALLEST_SHOWN * _is_consistent(vocabulary, [usable[i] for i in chosen])
        )
        support = UNKNOWN
    else:
        patterns, total = index.patterns(parts), index.n_records
        # compared as they may be shown, so that the choice tells no more than the answer
        kept = _search(len(usable), lambda chosen: rounded(patterns.count(chosen), total) or 0)
        support = index.support([parts[i] for i in kept])
    keep = [usable[i] for i in kept]
    gone = [(term.field, term.unknown if term in keep else term.patterns + term.unknown) for term in terms]
    dropped = [{"field": field, "codes": list(codes)} for field, codes in gone if codes]
    return Relaxation(_asked(keep), dropped, support)


def _asked(terms: Sequence[Term]) -> AskedCondition:
    """A condition of these terms alone."""
    fields: dict[str, list[Any]] = {field: [] for field in FIELDS}
    for term in terms:
        fields[term.field].append(list(term.patterns) if term.field == "any_of" else term.patterns[0])
    return AskedCondition(**fields)


def _is_consistent(vocabulary: Vocabulary, terms: Sequence[Term]) -> bool:
    try:
        vocabulary.resolve(_asked(terms))
    except ConditionError:
        return False
    return True


def _search(n: int, worth: Callable[[Sequence[int]], int]) -> list[int]:
    """The largest selection of n terms that is worth something; every selection if they are few, else greedily."""
    tries = 0
    for n_dropped in range(n):
        if tries + comb(n, n_dropped) > MOST_TRIES:
            return _greedy(n, worth)
        tries += comb(n, n_dropped)
        found = [(worth(kept), kept) for kept in combinations(range(n), n - n_dropped)]
        best, kept = max(found, key=lambda candidate: candidate[0])
        if best > 0:
            return list(kept)
    return []


def _greedy(n: int, worth: Callable[[Sequence[int]], int]) -> list[int]:
    """Take terms up as long as they leave something, the most common first: every term is looked at once."""
    kept: list[int] = []
    for term in sorted(range(n), key=lambda i: -worth([i])):
        if worth([*kept, term]) > 0:
            kept.append(term)
    return sorted(kept)
