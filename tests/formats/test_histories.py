"""Histories: visits in order under their patients."""

import numpy as np
import pytest

from ehr.errors import DataError
from ehr.histories import Histories
from ehr.records import Records


def two_patients() -> Histories:
    visits = Records.from_sets([{2, 3}, {3}, {4}], n_codes=5)
    return Histories(visits, np.array([0, 2, 3]), np.array([0, 30, 0], np.int32), Records.from_sets([{0}, {1}], 5))


def test_days_count_from_the_first_visit_of_each_patient() -> None:
    assert two_patients().days().tolist() == [0, 30, 0]


def test_patients_can_be_taken_in_any_order() -> None:
    taken = two_patients().take([1, 0])
    assert taken.visit_counts().tolist() == [1, 2]
    assert taken.gaps.tolist() == [0, 0, 30]
    assert taken.visits.indices.tolist() == [4, 2, 3, 3]


def test_ever_is_what_any_visit_or_the_patient_has() -> None:
    ever = two_patients().ever()
    assert ever.indices[: ever.indptr[1]].tolist() == [0, 2, 3]


def test_a_patient_without_visits_is_refused() -> None:
    with pytest.raises(DataError, match="at least one visit"):
        Histories(
            Records.from_sets([{0}], 1), np.array([0, 0, 1]), np.zeros(1, np.int32), Records.from_sets([[], []], 1)
        )


def test_a_gap_before_the_first_visit_is_refused() -> None:
    with pytest.raises(DataError, match="0 at a patient's first visit"):
        Histories(Records.from_sets([{0}], 1), np.array([0, 1]), np.ones(1, np.int32), Records.from_sets([[]], 1))
