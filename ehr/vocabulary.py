"""The codes a dataset or model knows, and what a condition written by a person means in terms of them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from ehr.codes.candidates import Candidates
from ehr.codes.meanings import description
from ehr.codes.names import name_of
from ehr.codes.search import CodeSearch
from ehr.codes.spelling import WILDCARD, Spellings
from ehr.conditions import AskedCondition, AskedTarget, Condition, Target
from ehr.errors import ConditionError, UnknownCodeError

MOST_CANDIDATES = 10
MOST_SAID = 3  # of them in a sentence
REMEMBERED = 256  # patterns


@dataclass(frozen=True)
class Reading:
    """What a pattern means: its codes, and `meant`, which names the same codes as the vocabulary writes them."""

    asked: str
    meant: str
    codes: tuple[int, ...]


@dataclass(frozen=True)
class Vocabulary:
    """Codes in a fixed order; a code's position is its index in records and models. `names` are those that a manifest
    keeps: see ehr/codes/names.py."""

    codes: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def positions(self) -> dict[str, int]:
        return self._spellings.positions

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.codes, ensure_ascii=True).encode()).hexdigest()

    def name_of(self, code: str) -> str | None:
        """What a code is called, or the stem of a wildcard (`ICD10CM:E11*`); None where that is not known."""
        if code.endswith(WILDCARD):
            stem = code.removesuffix(WILDCARD)
            return name_of(stem, self.names) or description(stem)
        return name_of(code, self.names)

    @cached_property
    def index(self) -> CodeSearch:
        """For searches by word. Takes a second for 100,000 codes."""
        return CodeSearch(self.codes, [self.name_of(code) for code in self.codes])

    def read(self, pattern: str) -> Reading:
        """What a pattern means: one code, or all that match `ICD9DX:250*`.

        What is in the vocabulary letter by letter is meant. Else case, blanks, the dots of ICD codes and other names of
        a system do not count, and a pattern without a system is looked for in all of them. UnknownCodeError with
        candidates if it then means nothing, or several things.
        """
        if (reading := self.reading(pattern)) is None:
            raise self._unknown(pattern)
        return reading

    def reading(self, pattern: str) -> Reading | None:
        """The same; None if it means nothing, or several things. Looking for candidates takes longer than this."""
        return self._remembered(pattern)

    def _read(self, pattern: str) -> Reading | None:
        if found := self._spellings.exactly(pattern):
            return Reading(pattern, pattern, tuple(found))
        meanings = self._spellings.alternatives(pattern)
        if len(meanings) != 1:
            return None
        return Reading(pattern, self._spellings.written(pattern, meanings[0]), tuple(meanings[0]))

    def candidates(self, pattern: str, most: int = MOST_CANDIDATES) -> list[dict[str, str | None]]:
        """Codes and wildcards that are close to a pattern, with their names, the closest first."""
        found = self._remembered_candidates(pattern)[:most]
        return [{"code": code, "name": self.name_of(code)} for code in found]

    def matching(self, pattern: str) -> list[int]:
        """The codes a pattern names; UnknownCodeError if none does."""
        return list(self.read(pattern).codes)

    def matching_any(self, patterns: Iterable[str]) -> list[int]:
        """The codes that any of the patterns names, ascending."""
        return sorted({code for pattern in patterns for code in self.matching(pattern)})

    def resolve(self, asked: AskedCondition) -> Condition:
        """Patterns to indices. A wildcard in `all_of` asks for at least one of the codes it matches."""
        required: set[int] = set()
        groups: list[list[int]] = []
        for pattern in asked.all_of:
            found = self.matching(pattern)
            if len(found) == 1:
                required.add(found[0])
            else:
                groups.append(found)
        groups += [self.matching_any(group) for group in asked.any_of]
        forbidden = set(self.matching_any(asked.none_of))
        self._refuse_contradictions(required, groups, forbidden)
        return Condition.of(len(self), sorted(required), groups, sorted(forbidden))

    def resolve_targets(self, condition: Condition, asked: Iterable[AskedTarget]) -> tuple[Target, ...]:
        """Patterns to indices; ConditionError if the targets contradict the condition or each other."""
        targets = tuple(Target(len(self), frozenset(self.matching_any(target.codes)), target.share) for target in asked)
        for number in range(len(targets)):
            self._refuse_contradicting_target(condition, targets, number)
        return targets

    def _refuse_contradictions(self, required: set[int], groups: list[list[int]], forbidden: set[int]) -> None:
        if both := sorted(required & forbidden):
            raise ConditionError(f"'{self.codes[both[0]]}' is both in all_of and in none_of")
        for group in groups:
            if not group:
                raise ConditionError("a group of any_of is empty: no record could satisfy it")
            if set(group) <= forbidden:
                raise ConditionError(f"every code like '{self.codes[group[0]]}' that is asked for is also in none_of")

    def _refuse_contradicting_target(self, condition: Condition, targets: tuple[Target, ...], number: int) -> None:
        """Any combination of targets met and not met must be possible: records are dealt to all of them."""
        target, name = targets[number], f"targets[{number}]"
        if target.share < 1 and (always := target.codes & condition.all_of):
            code = self.codes[min(always)]
            raise ConditionError(f"{name}: '{code}' is in all_of, so every record has it and not {target.share:.0%}")
        others = {code for i, other in enumerate(targets) if i != number and other.share < 1 for code in other.codes}
        if target.share > 0 and target.codes <= others | condition.none_of:
            raise ConditionError(
                f"{name}: none_of or the other targets forbid all of its codes to records that must meet it"
            )
        avoided = others | condition.none_of | (target.codes if target.share < 1 else set())
        for group in condition.any_of:
            if group <= avoided:
                code = self.codes[min(group)]
                raise ConditionError(
                    f"{name}: a record that meets no target could have none of the codes like '{code}' that any_of "
                    "asks for"
                )

    def as_written(self, asked: AskedCondition) -> AskedCondition:
        """The same condition with every code as the vocabulary writes it."""
        return AskedCondition(
            all_of=self.as_written_each(asked.all_of),
            any_of=[self.as_written_each(group) for group in asked.any_of],
            none_of=self.as_written_each(asked.none_of),
        )

    def as_written_each(self, patterns: Iterable[str]) -> list[str]:
        return [self.read(pattern).meant for pattern in patterns]

    @cached_property
    def _spellings(self) -> Spellings:
        return Spellings(self.codes)

    # A request is read several times over: held against the model, written down, relaxed.
    @cached_property
    def _remembered(self) -> Callable[[str], Reading | None]:
        return lru_cache(REMEMBERED)(self._read)

    @cached_property
    def _remembered_candidates(self) -> Callable[[str], list[str]]:
        found = Candidates(self._spellings, lambda: self.index)
        return lru_cache(REMEMBERED)(lambda pattern: found.of(pattern, MOST_CANDIDATES))

    def _unknown(self, pattern: str) -> UnknownCodeError:
        found = self.candidates(pattern)
        said = [f"'{each['code']}'" + (f" ({each['name']})" if each["name"] else "") for each in found[:MOST_SAID]]
        what = f"no code matches '{pattern}'" if WILDCARD in pattern else f"unknown code '{pattern}'"
        if self._spellings.alternatives(pattern):
            what = f"'{pattern}' means several things"
        hint = f"did you mean {', '.join(said[:-1])}{' or ' if said[1:] else ''}{said[-1]}?" if said else ""
        if not said and self.codes:
            hint = f"codes look like '{self.codes[0]}'"
        return UnknownCodeError(f"{what}; {hint}" if hint else what, candidates=found)
