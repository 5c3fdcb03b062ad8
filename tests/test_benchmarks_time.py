"""The arm that draws a patient's set of codes first: what it promises holds whatever the networks have learned."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks._histories import Patients
from benchmarks._time_set_first import SetFirst
from ehr.errors import ConditionError
from ehr.history_conditions import HistoryCondition
from ehr.rules import Rules
from ehr.vocabulary import Vocabulary
from tests.engine.test_histories import CODES, SMALL, STATIC_GROUPS, A, B, C, E, M, toy
from worker.engine.generators.visits import VisitsGenerator
from worker.engine.histories.protocol import HistoryFit


def visits_of(rules: Rules | None = None) -> VisitsGenerator:
    request = HistoryFit(toy(400), toy(100, 1), SMALL, static_groups=STATIC_GROUPS, rules=rules)
    return VisitsGenerator.prepare(request)[0]


@cache
def arm() -> SetFirst:
    data = Patients(toy(400), toy(100, 1), toy(100, 2), Vocabulary(CODES), simulated=False)
    return SetFirst.fit(data, visits_of(), epochs=1)


@pytest.mark.parametrize("paced", [False, True])
def test_patients_have_just_the_codes_of_their_sets(paced: bool) -> None:
    drawn, sets = arm().sample(200, 3, paced=paced)
    assert np.array_equal(drawn.ever().to_dense(), sets.to_dense())
    assert len(set(drawn.visit_counts().tolist())) > 1  # not all codes in one last visit


def test_ever_and_never_and_the_number_of_visits_are_conditions_on_the_set() -> None:
    condition = HistoryCondition(7, ever=(frozenset([E]), frozenset([A, B])), never=frozenset([C]), visits=(2, 3))
    drawn, _ = arm().sample(60, 4, condition)
    assert condition.satisfied_by(drawn).all()


def test_rules_of_visits_hold_for_sets_that_know_nothing_of_them() -> None:
    women = replace(arm(), visits=visits_of(Rules.of(STATIC_GROUPS, excludes=[(M, A)])))
    condition = HistoryCondition(7, ever=(frozenset([A]),))
    drawn, _ = women.sample(60, 5, condition)
    assert condition.satisfied_by(drawn).all()
    assert not drawn.static.having_any([M]).any()


def test_a_set_has_no_order() -> None:
    with pytest.raises(ConditionError, match="order"):
        arm().sample(1, 0, HistoryCondition(7, before=((frozenset([A]), frozenset([B])),)))
