"""Shares of a cohort that a person asked for, in terms of a vocabulary."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ehr.errors import ConditionError
from ehr.vocabulary import ResolvedCondition, Vocabulary


@dataclass(frozen=True)
class ResolvedTarget:
    """`share` of the records have one of `codes`, the others have none of them."""

    codes: tuple[int, ...]
    share: float

    def required(self, condition: ResolvedCondition) -> ResolvedCondition:
        """`condition` for the records that meet the target."""
        return ResolvedCondition(condition.all_of, (*condition.any_of, self.codes), condition.none_of)

    def excluded(self, condition: ResolvedCondition) -> ResolvedCondition:
        """`condition` for the others."""
        none_of = tuple(sorted({*condition.none_of, *self.codes}))
        return ResolvedCondition(condition.all_of, condition.any_of, none_of)


def resolve_targets(
    vocabulary: Vocabulary, condition: ResolvedCondition, asked: Iterable[tuple[Sequence[str], float]]
) -> tuple[ResolvedTarget, ...]:
    """Patterns to indices; ConditionError if the targets contradict the condition or each other."""
    targets = tuple(
        ResolvedTarget(tuple(sorted({code for pattern in patterns for code in vocabulary.matching(pattern)})), share)
        for patterns, share in asked
    )
    for number in range(len(targets)):
        _refuse_contradictions(vocabulary, condition, targets, number)
    return targets


def _refuse_contradictions(
    vocabulary: Vocabulary, condition: ResolvedCondition, targets: tuple[ResolvedTarget, ...], number: int
) -> None:
    """Any combination of targets met and not met must be possible: records are dealt to all of them."""
    target = targets[number]
    name = f"targets[{number}]"
    if target.share < 1 and (always := set(target.codes) & set(condition.all_of)):
        code = vocabulary.codes[min(always)]
        raise ConditionError(f"{name}: '{code}' is in all_of, so every record has it and not {target.share:.0%}")
    others = {code for i, other in enumerate(targets) if i != number and other.share < 1 for code in other.codes}
    if target.share > 0 and set(target.codes) <= others | set(condition.none_of):
        raise ConditionError(
            f"{name}: none_of or the other targets forbid all of its codes to records that must meet it"
        )
    avoided = others | set(condition.none_of) | (set(target.codes) if target.share < 1 else set())
    for group in condition.any_of:
        if set(group) <= avoided:
            code = vocabulary.codes[group[0]]
            raise ConditionError(
                f"{name}: a record that meets no target could have none of the codes like '{code}' that any_of asks for"
            )
