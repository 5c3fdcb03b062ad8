"""Requests that ask for the same people compare equal, whatever their words: checked against every record there is."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ehr.canonical_request import CanonicalRequest
from ehr.conditions import AskedCondition, AskedTarget
from ehr.errors import ConditionError
from ehr.groups import Group, Groups
from ehr.records import Records
from ehr.rules import Rules
from ehr.vocabulary import Vocabulary

VOCABULARY = Vocabulary(("A:1", "A:2", "B:1", "C:1", "C:2"))
EVERY_RECORD = Records.from_sets(
    [[code for code, there in enumerate(bits) if there] for bits in product([0, 1], repeat=5)], 5
)
ONE_OF_C = Groups(5, (Group("C:*", (3, 4), "exactly one"),))
PATTERNS = st.sampled_from(["A:1", "A:2", "B:1", "C:1", "C:2", "A:*", "B:*", "C:*", "*:1"])
CONDITIONS = st.builds(
    AskedCondition,
    all_of=st.lists(PATTERNS, max_size=3),
    any_of=st.lists(st.lists(PATTERNS, min_size=1, max_size=3), max_size=3),
    none_of=st.lists(st.sampled_from(["A:1", "B:1", "C:2", "B:*"]), max_size=2),
)


def people(asked: AskedCondition, groups: Groups | None) -> frozenset[int]:
    """The records that satisfy a condition, of all that could be."""
    satisfied = VOCABULARY.resolve(asked).satisfied_by(EVERY_RECORD)
    if groups is not None:
        satisfied = satisfied & ~groups.broken_by(EVERY_RECORD).any(axis=1)
    return frozenset(np.flatnonzero(satisfied).tolist())


def canonical(asked: AskedCondition, groups: Groups | None) -> CanonicalRequest:
    try:
        return CanonicalRequest.of(asked, [], VOCABULARY, None if groups is None else Rules.of(groups))
    except ConditionError:
        assume(False)
        raise


@settings(max_examples=300, deadline=None)
@given(CONDITIONS, CONDITIONS, st.sampled_from([None, ONE_OF_C]))
def test_the_same_people_are_the_same_request(one: AskedCondition, two: AskedCondition, groups: Groups | None) -> None:
    first, second = canonical(one, groups), canonical(two, groups)
    these, those = people(one, groups), people(two, groups)
    assume(these and those)  # a condition that nobody could satisfy is refused
    assert (first == second) == (these == those)
    assert first.is_within(second) == (these <= those)
    assert CanonicalRequest.from_json(first.as_json()) == first


SAME: list[dict[str, Any]] = [
    {"conditions": {"all_of": ["B:1"]}},
    {"conditions": {"all_of": ["B:1", "B:1"]}},
    {"conditions": {"all_of": ["B:*"]}},
    {"conditions": {"any_of": [["B:1"]]}},
    {"conditions": {"any_of": [["B:1", "A:1"]], "all_of": ["B:1"]}},
    {"targets": [{"codes": ["B:*"], "share": 1}]},
]


@pytest.mark.parametrize("request_", SAME)
def test_words_seeds_and_sizes_do_not_count(request_: dict[str, Any]) -> None:
    asked = AskedCondition.model_validate(request_.get("conditions", {}))
    targets = [AskedTarget.model_validate(target) for target in request_.get("targets", [])]
    assert CanonicalRequest.of(asked, targets, VOCABULARY) == CanonicalRequest(frozenset([frozenset(["B:1"])]))


def test_the_share_of_a_target_does_not_count_but_its_codes_do() -> None:
    def of(code: str, share: float) -> CanonicalRequest:
        return CanonicalRequest.of(AskedCondition(), [AskedTarget(codes=[code], share=share)], VOCABULARY)

    assert of("A:1", 0.5) == of("A:1", 0.51) != of("A:2", 0.5)
    assert of("A:1", 0.0) == CanonicalRequest.of(AskedCondition(none_of=["A:1"]), [], VOCABULARY)
    assert of("A:1", 0.5).is_within(CanonicalRequest()) and not CanonicalRequest().is_within(of("A:1", 0.5))


def test_requests_of_earlier_versions_are_taken_as_written() -> None:
    payload = {"conditions": {"all_of": ["A:1", "A:1"], "any_of": [["A:1", "B:*"]]}, "seed": 3}
    assert CanonicalRequest.as_written(payload) == CanonicalRequest(frozenset([frozenset(["A:1"])]))
    assert CanonicalRequest.as_written({}) == CanonicalRequest()
