"""The arm that draws a patient's set of codes first: what it promises holds whatever the networks have learned."""

from functools import cache

import numpy as np
import pytest

from benchmarks._histories import Patients
from benchmarks._time_set_first import SetFirst
from ehr.errors import ConditionError
from ehr.history_conditions import HistoryCondition
from ehr.vocabulary import Vocabulary
from tests.engine.test_histories import CODES, SMALL, STATIC_GROUPS, A, B, C, E, toy
from worker.engine.generators.visits import VisitsGenerator
from worker.engine.histories.protocol import HistoryFit


@cache
def arm() -> SetFirst:
    data = Patients(toy(400), toy(100, 1), toy(100, 2), Vocabulary(CODES), simulated=False)
    visits, _ = VisitsGenerator.prepare(HistoryFit(data.train, data.holdout, SMALL, static_groups=STATIC_GROUPS))
    return SetFirst.fit(data, visits, epochs=2)


@pytest.mark.parametrize("paced", [False, True])
def test_patients_have_just_the_codes_of_their_sets(paced: bool) -> None:
    drawn, sets = arm().sample(200, 3, paced=paced)
    assert np.array_equal(drawn.ever().to_dense(), sets.to_dense())
    assert len(set(drawn.visit_counts().tolist())) > 1  # not all codes in one last visit


def test_ever_and_never_and_the_number_of_visits_are_conditions_on_the_set() -> None:
    condition = HistoryCondition(7, ever=(frozenset([E]), frozenset([A, B])), never=frozenset([C]), visits=(2, 3))
    drawn, _ = arm().sample(60, 4, condition)
    assert condition.satisfied_by(drawn).all()


def test_a_set_has_no_order() -> None:
    with pytest.raises(ConditionError, match="order"):
        arm().sample(1, 0, HistoryCondition(7, before=((frozenset([A]), frozenset([B])),)))
