"""A cohort by itself: what its blocks say together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ehr.conditions import AskedTarget, Condition, Target
from ehr.groups import Group, Groups
from ehr.records import Records
from ehr.rules import Rules
from ehr.vocabulary import Vocabulary
from worker.evaluation.description import Tally
from worker.tasks.describe import _hold_to

CODES = Vocabulary(("A:0", "A:1", "A:2", "A:3", "A:4"))
GROUPS = Groups(5, (Group("A:*", (0, 1), "exactly one"),))


@given(st.lists(st.sets(st.integers(0, 4)), max_size=30), st.integers(0, 30))
def test_blocks_add_up_to_the_cohort(sets: list[set[int]], cut: int) -> None:
    condition, targets = Condition.of(5, all_of=[0]), (Target(5, frozenset([3, 4]), 0.5),)
    tally = Tally(CODES, condition, targets, GROUPS)
    for block in (sets[:cut], sets[cut:]):
        tally.add(Records.from_sets(block, 5))
    told, n = tally.described(None), max(len(sets), 1)
    assert {each.code: each.synthetic for each in told.prevalence} == {
        CODES.codes[i]: sum(i in each for each in sets) / n for i in range(5) if any(i in each for each in sets)
    }
    assert [each.synthetic for each in told.prevalence] == sorted((e.synthetic for e in told.prevalence), reverse=True)
    assert sum(each.codes * each.synthetic for each in told.sizes) == pytest.approx(told.codes_per_record)
    met = sum(bool(each & {3, 4}) for each in sets) / n
    assert [each.attained for each in tally.attained([AskedTarget(codes=["A:3", "A:4"], share=0.5)])] == [met]
    if sets:
        shares = {name: metric.figures["value"].value for name, metric in told.metrics.items()}
        assert shares["attainment"] == sum(0 in each for each in sets) / n
        assert shares["groups_broken"] == sum(len(each & {0, 1}) != 1 for each in sets) / n


def test_groups_and_rules_of_patients_over_time_are_about_their_visits() -> None:
    tally = Tally(CODES, groups=GROUPS, rules=Rules.of(GROUPS, [(2, 3)]))
    tally.add(Records.from_sets([[0, 2, 3]], 5), visits=Records.from_sets([[0, 2], [0, 3], [0, 2, 3], [0, 1]], 5))
    shares = {name: metric.figures["value"].value for name, metric in tally.described(None).metrics.items()}
    assert shares == {"groups_broken": 0.25, "rules_broken": 0.25}


def test_whether_rules_are_told_of_does_not_depend_on_the_condition() -> None:
    tally, stored = Tally(CODES), Rules.of(GROUPS, [(2, 3)])
    _hold_to(tally, stored, stored.without(Condition.of(5, [2, 3])))
    tally.add(Records.from_sets([[0, 2, 3]], 5))
    shares = {name: metric.figures["value"].value for name, metric in tally.described(None).metrics.items()}
    assert shares == {"groups_broken": 0, "rules_broken": 0}
