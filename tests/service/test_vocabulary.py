"""What a person writes as a condition, and what it means."""

import numpy as np
import pytest

from ehr.conditions import AskedCondition
from ehr.errors import ConditionError, UnknownCodeError
from ehr.records import Records
from ehr.vocabulary import Vocabulary

CODES = Vocabulary(("ICD9DX:25000", "ICD9DX:25010", "ICD9DX:4019", "ICD9PX:25000", "RX:9[1]?"))


def test_wildcards_become_groups() -> None:
    asked = CODES.resolve(
        AskedCondition(
            all_of=["ICD9DX:4019", "ICD9DX:250*"], any_of=[["RX:*", "ICD9PX:25000"]], none_of=["ICD9DX:25010"]
        )
    )
    assert asked.all_of == {2}
    assert asked.any_of == ({0, 1}, {3, 4})
    assert asked.none_of == {1}
    assert CODES.matching("RX:9[1]*") == [4]


def test_conditions_select_records() -> None:
    indptr, indices = np.array([0, 2, 3, 3, 5]), np.array([0, 2, 1, 1, 2], dtype=np.int32)
    asked = CODES.resolve(AskedCondition(all_of=["ICD9DX:250*"], none_of=["ICD9DX:25010"]))
    assert asked.satisfied_by(Records(indptr, indices, 5)).tolist() == [True, False, False, False]
    assert CODES.resolve(AskedCondition()).is_empty


def test_unknown_codes_get_a_suggestion() -> None:
    with pytest.raises(UnknownCodeError, match="did you mean 'ICD9DX:4019'"):
        CODES.matching("ICD9DX:4018")
    with pytest.raises(UnknownCodeError, match="no code matches"):
        CODES.matching("ICD10:*")


def test_contradictions_are_refused() -> None:
    with pytest.raises(ConditionError):
        CODES.resolve(AskedCondition(all_of=["ICD9DX:4019"], none_of=["ICD9DX:4019"]))
    with pytest.raises(ConditionError):
        CODES.resolve(AskedCondition(all_of=["ICD9DX:250*"], none_of=["ICD9DX:250*"]))


def test_a_flat_list_is_one_group() -> None:
    assert AskedCondition(any_of=["a", "b"]).any_of == [["a", "b"]]  # type: ignore[list-item]
