"""The nearest thing that can be had when a condition cannot: the fewest terms to drop.

A term is what a person wrote: an entry of `all_of` or `none_of`, or a group of `any_of`. A code that the vocabulary
does not have is replaced by the closest one, and dropped only if none is close.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, Literal

from ehr.conditions import AskedCondition, AskedTarget
from ehr.errors import ConditionError
from ehr.support import ReferenceCohort, Requirement, Selections
from ehr.vocabulary import Vocabulary

Field = Literal["all_of", "any_of", "none_of"]
FIELDS: tuple[Field, ...] = ("all_of", "any_of", "none_of")
MOST_TRIES = 1_100  # selections of terms that are counted before the search becomes greedy: all of ten terms
MOST_REPLACED = 10  # unknown codes whose closest one is looked for: it takes a moment for each
NOTHING_CLOSE = "unknown, and no close code was found"


@dataclass(frozen=True)
class Term:
    """A term with those of its patterns that the vocabulary knows, as it writes them; without codes it is not kept."""

    field: Field
    patterns: tuple[str, ...]
    codes: tuple[int, ...]
    asked: tuple[str, ...] = ()  # the same patterns as they were written
    unknown: tuple[str, ...] = ()  # patterns beside them that no code matches, nor is close to
    replaced: tuple["Replacement", ...] = ()  # patterns that were unknown and have become others

    @property
    def requirement(self) -> Requirement:
        return Requirement(self.codes, wanted=self.field != "none_of")


@dataclass(frozen=True)
class Replacement:
    """An unknown code, and the code or wildcard that is closest to it."""

    field: Field | Literal["targets"]
    asked: str
    code: str
    name: str | None


@dataclass(frozen=True)
class Relaxation:
    """A condition that can be had, ready to be sent, what had to go for it, and which codes are others than asked."""

    conditions: AskedCondition
    dropped: list[dict[str, Any]]
    terms: tuple[Term, ...]  # that are left

    @property
    def replaced(self) -> list[Replacement]:
        return [each for term in self.terms for each in term.replaced]


def terms_of(vocabulary: Vocabulary, asked: AskedCondition) -> list[Term]:
    """What was written, term by term, with unknown codes replaced or left out."""
    written: list[tuple[Field, Sequence[str]]] = [
        *(("all_of", [pattern]) for pattern in asked.all_of),
        *(("any_of", group) for group in asked.any_of),
        *(("none_of", [pattern]) for pattern in asked.none_of),
    ]
    replacing = Replacing(vocabulary)
    read = [(field, replacing.read(field, patterns)) for field, patterns in written]
    return [Term(field, each.meant, each.codes, each.asked, each.unknown, each.replaced) for field, each in read]


@dataclass(frozen=True)
class Read:
    """Patterns as the vocabulary has them: those it knows, or that are close to one it knows, and the rest."""

    asked: tuple[str, ...]  # as they were written
    meant: tuple[str, ...]  # the same as the vocabulary writes them, or the closest
    codes: tuple[int, ...]  # of all of them
    unknown: tuple[str, ...]
    replaced: tuple[Replacement, ...]


class Replacing:
    """Reads patterns, with the closest code for unknown ones: of as many as a request may reasonably have."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary, self.left = vocabulary, MOST_REPLACED

    def read(self, field: Field | Literal["targets"], patterns: Sequence[str]) -> Read:
        asked, meant, codes, unknown, replaced = [], [], set(), [], []
        for pattern in patterns:
            reading = self.vocabulary.reading(pattern)
            if reading is None and (closest := self._closest(field, pattern)) is not None:
                reading = self.vocabulary.reading(closest.code)
                replaced += [closest] if reading is not None else []
            if reading is None:
                unknown.append(pattern)
            else:
                asked.append(pattern)
                meant.append(reading.meant)
                codes |= set(reading.codes)
        return Read(tuple(asked), tuple(meant), tuple(sorted(codes)), tuple(unknown), tuple(replaced))

    def _closest(self, field: Field | Literal["targets"], pattern: str) -> Replacement | None:
        if self.left == 0:
            return None
        self.left -= 1
        found = self.vocabulary.candidates(pattern, most=1)
        return Replacement(field, pattern, str(found[0]["code"]), found[0]["name"]) if found else None


@dataclass(frozen=True)
class ReadTarget:
    """A target with the codes that were meant; None if none of them is known."""

    read: Read
    target: AskedTarget | None

    @property
    def replaced(self) -> tuple[Replacement, ...]:
        return self.read.replaced

    def dropped(self, kept: bool) -> list[dict[str, Any]]:
        """What of it had to go."""
        unknown, asked = list(self.read.unknown), list(self.read.asked)
        return [
            *([{"field": "targets", "codes": unknown, "reason": NOTHING_CLOSE}] if unknown else []),
            *([{"field": "targets", "codes": asked}] if asked and not kept else []),
        ]


def read_targets(vocabulary: Vocabulary, targets: Sequence[AskedTarget]) -> list[ReadTarget]:
    """Targets with unknown codes replaced or left out."""
    replacing = Replacing(vocabulary)
    read = [(each, replacing.read("targets", each.codes)) for each in targets]
    return [
        ReadTarget(found, AskedTarget(codes=list(found.meant), share=each.share) if found.meant else None)
        for each, found in read
    ]


def nearest(
    vocabulary: Vocabulary, reference: ReferenceCohort | None, terms: Sequence[Term], fewest: int
) -> Relaxation:
    """The fewest terms dropped such that at least `fewest` drawn records satisfy the rest; of equally many the
    selection with most records. Without a reference cohort: such that the rest does not contradict itself."""
    usable = [term for term in terms if term.codes]
    if reference is None:
        kept = search(len(usable), lambda chosen: int(_is_consistent(vocabulary, [usable[i] for i in chosen])))
    else:
        selections = Selections(reference, [term.requirement for term in usable])

        def worth(chosen: Sequence[int]) -> int:
            count = selections.count(chosen)
            return count if count >= fewest else 0

        kept = search(len(usable), worth)
    keep = [usable[i] for i in kept]
    gone = [term for term in terms if term.asked and term not in keep]
    unknown = [term for term in terms if term.unknown]
    dropped: list[dict[str, Any]] = [
        *({"field": term.field, "codes": list(term.asked)} for term in gone),
        *({"field": term.field, "codes": list(term.unknown), "reason": NOTHING_CLOSE} for term in unknown),
    ]
    return Relaxation(_asked(keep), dropped, tuple(keep))


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


def search(n: int, worth: Callable[[Sequence[int]], int]) -> list[int]:
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
