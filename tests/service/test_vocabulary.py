"""What a person writes as a condition, and what it means."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


# --- codes as people write them ---

MIXED = Vocabulary(
    (
        *("CPT:250", "ICD10CM:E10", "ICD10CM:E1165", "ICD10CM:E119", "ICD10CM:E84", "ICD9DX:250", "ICD9DX:25000"),
        *("ICD9DX:4019", "LOINC:2345-7#D1", "LOINC:2345-7#D2", "WARD:ICU"),
    )
)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("ICD10CM:E1165", "ICD10CM:E1165"),
        ("E11.65", "ICD10CM:E1165"),
        ("e1165", "ICD10CM:E1165"),
        ("icd10cm:e11.65", "ICD10CM:E1165"),
        (" icd9dx:250.00", "ICD9DX:25000"),
        ("ICD-9-CM:250.00", "ICD9DX:25000"),
        ("ICD9 : 401.9", "ICD9DX:4019"),
        ("cpt4:250", "CPT:250"),
        ("loinc:2345-7#d2", "LOINC:2345-7#D2"),
        ("icu", "WARD:ICU"),
        ("E11*", "ICD10CM:E11*"),
        ("e11.6*", "ICD10CM:E116*"),
        ("icd10cm:e1*", "ICD10CM:E1*"),
        ("icd*:e1*", "ICD10CM:E1*"),
        ("ICD9DX:250*", "ICD9DX:250*"),
        ("*:25*", "*:25*"),
        ("*", "*"),
    ],
)
def test_codes_are_read_as_uploads_are(asked: str, meant: str) -> None:
    reading = MIXED.read(asked)
    assert reading.meant == meant and reading.codes
    assert MIXED.read(meant).codes == reading.codes and MIXED.read(meant).meant == meant


def test_what_is_there_letter_by_letter_is_meant() -> None:
    vocabulary = Vocabulary(("E11", "ICD10CM:E11", "ICD10CM:E11.9", "ICD10CM:E119", "e11"))
    assert [vocabulary.read(code).codes for code in vocabulary.codes] == [(0,), (1,), (2,), (3,), (4,)]
    assert vocabulary.reading("icd10cm:e11.9") is None  # E11.9 and E119 are two codes of this data
    assert vocabulary.read("ICD10CM:E11.*").codes == (2,)
    assert vocabulary.read("icd10cm:e11.*").codes == (1, 2, 3)


@given(st.sampled_from(MIXED.codes), st.booleans(), st.booleans(), st.sampled_from(["", " ", "\u00a0"]))
def test_any_spelling_of_a_code_with_its_system_is_that_code(code: str, small: bool, dotted: bool, blank: str) -> None:
    system, rest = code.split(":")
    written = f"{rest[:3]}.{rest[3:]}" if dotted and system.startswith("ICD") and len(rest) > 3 else rest
    asked = f"{blank}{system}:{blank}{written}{blank}"
    assert MIXED.read(asked.lower() if small else asked).meant == code


@pytest.mark.parametrize(
    ("asked", "candidates"),
    [
        ("250", ["CPT:250", "ICD9DX:250"]),  # in two systems
        ("25*", ["CPT:25*", "ICD9DX:25*"]),
        ("SNOMED:E84", ["ICD10CM:E84"]),  # the code of another system
        ("E84.09", ["ICD10CM:E84"]),  # finer than the data
        ("ICD10CM:E84.0*", ["ICD10CM:E84", "ICD10CM:E84*"]),
        ("ICD10CM:E11", ["ICD10CM:E11*", "ICD10CM:E119", "ICD10CM:E10"]),  # coarser than the data
        ("LOINC:2345-7", ["LOINC:2345-7*"]),
        ("ICD10CM:E85", ["ICD10CM:E84"]),  # a letter is wrong
        ("ICD10CM:E48", ["ICD10CM:E84"]),  # two are swapped
        ("ICD10CM:E85*", ["ICD10CM:E84*"]),
        ("cystic fibrosis", ["ICD10CM:E84"]),  # no code at all
        ("ICD10CM:E99", []),
        ("X*", []),
        ("", []),
    ],
)
def test_what_may_have_been_meant(asked: str, candidates: list[str]) -> None:
    with pytest.raises(UnknownCodeError) as refused:
        MIXED.read(asked)
    found = refused.value.more["candidates"]
    assert [each["code"] for each in found] == candidates
    assert all(MIXED.read(each["code"]).codes for each in found)  # each can be sent as it is
    assert ("did you mean" in str(refused.value)) == bool(candidates)
    for each in found[:3]:
        assert f"'{each['code']}'" + (f" ({each['name']})" if each["name"] else "") in str(refused.value)


@pytest.mark.parametrize(("rolled_up", "name"), [("CCSR:END003", None), ("CCS:50", "Diabetes mellitus with")])
def test_a_code_of_data_that_was_rolled_up(rolled_up: str, name: str | None) -> None:
    (found,) = Vocabulary(("CCS:1", rolled_up)).candidates("E11.65")
    assert found["code"] == rolled_up and str(found["name"]).startswith(str(name))


def test_conditions_are_written_as_the_vocabulary_does() -> None:
    asked = AskedCondition(all_of=["e84"], any_of=[["e11*", "ICD9DX:4019"]], none_of=["icd9:250.00"])
    written = AskedCondition(all_of=["ICD10CM:E84"], any_of=[["ICD10CM:E11*", "ICD9DX:4019"]], none_of=["ICD9DX:25000"])
    assert MIXED.as_written(asked) == written and MIXED.as_written(written) == written
    assert MIXED.resolve(asked) == MIXED.resolve(written)
