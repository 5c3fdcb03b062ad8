"""Shares of a cohort of patients over time: from what a person wrote to indices of one vocabulary."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ehr.codes.systems import is_about_patient
from ehr.conditions import AskedTarget, Condition
from ehr.errors import ConditionError
from ehr.history_conditions import HistoryCondition, codes_of_visits
from ehr.vocabulary import Vocabulary


@dataclass(frozen=True)
class HistoryTarget:
    """A share of the cohort that shall ever have one of these codes; the others shall never have one. Static codes say
    who that share of the patients is."""

    n_codes: int
    codes: frozenset[int]
    share: float
    is_static: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConditionError(f"the share of a target must be between 0 and 1, not {self.share}")

    def required(self, condition: HistoryCondition | None) -> Callable[[], HistoryCondition]:
        """`condition` for patients who meet the target; made when called, so that it is refused only if needed."""
        base = condition or HistoryCondition(self.n_codes)
        start = base.start or Condition(self.n_codes)
        if self.is_static:
            return lambda: replace(base, start=replace(start, any_of=(*start.any_of, self.codes)))
        return lambda: replace(base, ever=(*base.ever, self.codes))

    def excluded(self, condition: HistoryCondition | None) -> Callable[[], HistoryCondition]:
        """`condition` for patients who do not meet the target."""
        base = condition or HistoryCondition(self.n_codes)
        start = base.start or Condition(self.n_codes)
        if self.is_static:
            return lambda: replace(base, start=replace(start, none_of=start.none_of | self.codes))
        return lambda: replace(base, never=base.never | self.codes)


def resolve_targets(
    vocabulary: Vocabulary, condition: HistoryCondition, asked: Iterable[AskedTarget]
) -> tuple[HistoryTarget, ...]:
    """Patterns to indices; ConditionError if the targets contradict the condition or each other: patients are dealt to
    every selection of targets met and missed."""
    targets = tuple(_target(vocabulary, number, each) for number, each in enumerate(asked))
    choices = [[met for met in (True, False) if target.share != (0 if met else 1)] for target in targets]
    for selection in product(*choices):
        try:
            _selected(condition, zip(targets, selection, strict=True))
        except ConditionError as error:
            said = (f"targets[{number}] {'met' if met else 'missed'}" for number, met in enumerate(selection))
            raise ConditionError(f"patients with {' and '.join(said)} cannot be: {error}") from None
    return targets


def with_certain(condition: HistoryCondition, targets: Sequence[HistoryTarget]) -> HistoryCondition:
    """The condition with what the targets ask of all patients or of none."""
    return _selected(condition, ((target, target.share == 1) for target in targets if target.share in (0, 1)))


def _selected(condition: HistoryCondition, selection: Iterable[tuple[HistoryTarget, bool]]) -> HistoryCondition:
    for target, met in selection:
        condition = (target.required if met else target.excluded)(condition)()
    return condition


def _target(vocabulary: Vocabulary, number: int, asked: AskedTarget) -> HistoryTarget:
    found = frozenset(vocabulary.matching_any(asked.codes))
    if all(is_about_patient(vocabulary.codes[code]) for code in found):
        return HistoryTarget(len(vocabulary), found, asked.share, is_static=True)
    # of a wildcard that matches both, the codes of visits are meant
    codes = codes_of_visits(vocabulary, f"targets[{number}]", asked.codes)
    return HistoryTarget(len(vocabulary), codes, asked.share)
