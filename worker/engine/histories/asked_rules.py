"""Which rules hold for patients of whom something is asked, and what the rules say of who these patients are."""

from collections.abc import Iterable, Iterator

from ehr.errors import ConditionError
from ehr.history_conditions import HistoryCondition
from ehr.rules import Rules
from worker.engine.histories.tokens import VisitTokens

Sets = list[frozenset[int]]  # of each, one code must be there


def rules_under(tokens: VisitTokens, condition: HistoryCondition) -> Rules:
    """The rules of the tokens, or only the certain ones where those that were found leave no patient who satisfies the
    condition; ConditionError where the certain ones leave none either. As for records (docs/decisions/0045)."""
    if len(tokens.rules) == 0 or not _contradicted(tokens.rules, tokens, condition):
        return tokens.rules
    certain = tokens.rules.only_certain
    if clash := _contradicted(certain, tokens, condition):
        raise ConditionError(f"no patient can satisfy the condition: {clash}")
    return certain


def shut_static(tokens: VisitTokens, sets: Sets) -> list[int]:
    """Static tokens of patients who can never have any code of one of the sets."""
    found: set[int] = set()
    for codes in sets:
        shut = [set(tokens.rules.excluded[code]) for code in sorted(codes)]
        found |= set.intersection(*shut) if shut else set()
    return sorted(token for token in found if tokens.first_static <= token < tokens.first_gap)


def _contradicted(rules: Rules, tokens: VisitTokens, condition: HistoryCondition) -> str | None:
    """Why the rules leave no patient, or None."""
    who = {tokens.first_static + place for place in _static_places(tokens, condition)}
    for codes in _asked_sets(condition):
        if all(who & set(rules.excluded[code]) for code in codes):
            return "a rule of the data keeps a code that is asked for from people who are as it says"
    for _, at_visit in condition.at_visit:
        for code in at_visit.all_of:
            if at_visit.all_of & set(rules.excluded[code]):
                return "a rule of the data keeps two codes apart that are asked for at one visit"
    return None


def _static_places(tokens: VisitTokens, condition: HistoryCondition) -> Iterator[int]:
    asked: set[int] = set() if condition.start is None else set(condition.start.all_of)
    if condition.prompt is not None:
        asked |= set(condition.prompt.static.indices.tolist())
    yield from (place for place, code in enumerate(tokens.static.tolist()) if code in asked)


def _asked_sets(condition: HistoryCondition) -> Iterable[frozenset[int]]:
    yield from condition.ever
    for pair in condition.before:
        yield from pair
    for _, at_visit in condition.at_visit:
        yield from (frozenset([code]) for code in at_visit.all_of)
        yield from at_visit.any_of
