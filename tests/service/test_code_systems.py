"""What codes mean."""

import pytest

from ehr.codes.meanings import category, chapter, description, kind_of


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
