"""What a cohort is asked to be, in one form for all wordings: requests that ask for the same compare equal.

`all_of: [A, A]`, `any_of: [[A]]`, a wildcard that matches A alone, and a target of A for all records are one request.
How many records, with which seed, method and number of steps, and the share of a target do not count: they make another
sample of the same people.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from ehr.conditions import AskedCondition, AskedTarget, Condition
from ehr.groups import Groups
from ehr.rules import Rules
from ehr.vocabulary import Vocabulary

Clauses = frozenset[frozenset[str]]


@dataclass(frozen=True)
class CanonicalRequest:
    """`clauses`: one code of each is in every record; `none_of`: in no record; `targets`: in some records."""

    clauses: Clauses = frozenset()
    none_of: frozenset[str] = frozenset()
    targets: Clauses = frozenset()

    @classmethod
    def of(
        cls,
        asked: AskedCondition,
        targets: Iterable[AskedTarget],
        vocabulary: Vocabulary,
        rules: Rules | None = None,
    ) -> Self:
        """Of a request that can be met: its patterns as codes, with what follows from `rules` and their groups."""
        condition = vocabulary.resolve(asked)
        shares = vocabulary.resolve_targets(condition, targets)
        for target in shares:
            if target.share == 1:
                condition = target.required(condition)()
            elif target.share == 0:
                condition = target.excluded(condition)()
        known = Rules.of(Groups(len(vocabulary))) if rules is None else rules
        condition = _settled(condition.simplified(), known, vocabulary.codes)
        parts = (target.codes - condition.none_of for target in shares if 0 < target.share < 1)
        return cls._named(condition, parts, vocabulary.codes)

    @classmethod
    def as_written(cls, payload: Mapping[str, Any]) -> Self:
        """Of a stored request whose vocabulary is not at hand: wildcards stay what they are."""
        asked = AskedCondition.model_validate(payload.get("conditions") or {})
        targets = [AskedTarget.model_validate(target) for target in payload.get("targets") or []]
        words = {*asked.all_of, *asked.none_of, *(word for group in asked.any_of for word in group)}
        codes = sorted(words.union(*(target.codes for target in targets)))
        place = {word: number for number, word in enumerate(codes)}
        condition = Condition.of(
            len(codes),
            (place[word] for word in asked.all_of),
            ((place[word] for word in group) for group in asked.any_of),
            (place[word] for word in asked.none_of),
        )
        parts = (frozenset(place[word] for word in target.codes) for target in targets)
        return cls._named(condition.simplified(), parts, codes)

    @classmethod
    def _named(cls, condition: Condition, targets: Iterable[frozenset[int]], codes: Sequence[str]) -> Self:
        def names(group: Iterable[int]) -> frozenset[str]:
            return frozenset(codes[code] for code in group)

        clauses = (*([code] for code in condition.all_of), *condition.any_of)
        return cls(
            frozenset(names(clause) for clause in clauses),
            names(condition.none_of),
            frozenset(names(target) for target in targets),
        )

    def is_within(self, other: "CanonicalRequest") -> bool:
        """Whether every record that is asked for here satisfies what was asked for there: the same or fewer people.

        A record with one code of each of our clauses has one of theirs for certain only if theirs contains one of ours.
        """
        return (
            all(any(ours <= theirs for ours in self.clauses) for theirs in other.clauses)
            and other.none_of <= self.none_of
            and other.targets <= self.targets
        )

    def as_json(self) -> dict[str, Any]:
        """As it is stored, sorted."""
        return {
            "clauses": sorted(sorted(clause) for clause in self.clauses),
            "none_of": sorted(self.none_of),
            "targets": sorted(sorted(target) for target in self.targets),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """What `as_json` gave."""
        return cls(
            frozenset(frozenset(clause) for clause in stored["clauses"]),
            frozenset(stored["none_of"]),
            frozenset(frozenset(target) for target in stored["targets"]),
        )


def _settled(condition: Condition, rules: Rules, codes: Sequence[str]) -> Condition:
    """What groups and rules add is said in one way: which codes are required and which are forbidden.

    ConditionError if no record could satisfy it.
    """
    groups = rules.groups
    members = [frozenset(group.codes) for group in groups.groups]
    while True:
        condition = rules.settled(condition, codes).simplified()
        ruled_out = frozenset().union(*(m - clause for m in members for clause in condition.any_of if clause <= m))
        if ruled_out <= condition.none_of:
            break
        condition = replace(condition, none_of=condition.none_of | ruled_out).simplified()
    always = [frozenset(group.codes) - condition.none_of for group in groups.groups if not group.is_optional]
    said = tuple(clause for clause in condition.any_of if not any(one <= clause for one in always))
    return replace(condition, any_of=said)
