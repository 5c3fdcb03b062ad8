"""The codes a dataset or model knows, and what a condition written by a person means in terms of them."""

import difflib
import fnmatch
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ehr.conditions import AskedCondition, AskedTarget, Condition, Target
from ehr.errors import ConditionError, UnknownCodeError

WILDCARD = "*"


@dataclass(frozen=True)
class Vocabulary:
    """Codes in a fixed order; a code's position is its index in records and models."""

    codes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def positions(self) -> dict[str, int]:
        return {code: position for position, code in enumerate(self.codes)}

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.codes, ensure_ascii=True).encode()).hexdigest()

    def matching(self, pattern: str) -> list[int]:
        """The codes a pattern names: one code, or all that match `ICD9DX:250*`. UnknownCodeError if none does."""
        if WILDCARD in pattern:
            literal = pattern.replace("[", "[[]").replace("?", "[?]")  # only the star is special
            found = [i for i, code in enumerate(self.codes) if fnmatch.fnmatchcase(code, literal)]
            if not found:
                raise UnknownCodeError(f"no code matches '{pattern}'{self._hint(pattern.replace(WILDCARD, ''))}")
            return found
        if pattern not in self.positions:
            raise UnknownCodeError(f"unknown code '{pattern}'{self._hint(pattern)}")
        return [self.positions[pattern]]

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

    def _hint(self, pattern: str) -> str:
        close = difflib.get_close_matches(pattern, self.codes, n=3, cutoff=0.6)
        if close:
            return "; did you mean " + ", ".join(f"'{code}'" for code in close) + "?"
        return f"; codes look like '{self.codes[0]}'" if self.codes else ""
