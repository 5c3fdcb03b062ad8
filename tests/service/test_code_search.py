"""Codes found by what they mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ehr.codes.names import LONGEST_NAME, cleaned, name_of, names_for
from ehr.codes.search import CodeSearch
from ehr.codes.typos import WordList, distance

NAMES = {
    "ICD10CM:E10": "Type 1 diabetes mellitus",
    "ICD10CM:E11": "Type 2 diabetes mellitus",
    "ICD10CM:E1165": "Type 2 diabetes mellitus with hyperglycemia",
    "ICD10CM:I50": "Heart failure",
    "ICD10CM:M350": "Sj\u00f6gren syndrome",
    "ICD9DX:2700": "Hartnup disease: failure of amino-acid transport",
    "LOCAL:D2": None,
}
INDEX = CodeSearch(list(NAMES), list(NAMES.values()))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("diabetes", ["E10", "E11", "E1165"]),
        ("DIABETES type 2", ["E11", "E1165"]),
        ("2 mellitus TYPE", ["E11", "E1165"]),
        ("diab hyperg", ["E1165"]),
        ("diabtes", ["E10", "E11", "E1165"]),
        ("hyperglycaemia", ["E1165"]),
        ("hart failure", ["2700"]),  # both words are there
        ("hart failre", ["2700"]),
        ("haert failure", ["I50"]),
        ("sjogren", ["M350"]),
        ("e11", ["E11", "E1165"]),
        ("icd10cm:e11", ["E11", "E1165"]),
        ("E11.65", ["E1165"]),
        ("27", ["2700"]),
        ("d2", ["D2"]),
        ("xyzzy", []),
        ("type 3 diabetes", []),
    ],
)
def test_words_in_any_order_with_small_typos(text: str, found: list[str]) -> None:
    codes = [list(NAMES)[i].partition(":")[2] for i in INDEX.search(text)]
    assert codes == found


def test_without_words_all_codes_come_in_their_order() -> None:
    assert INDEX.search("  ") == list(range(len(NAMES)))


@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_distance_is_that_of_the_shortest_way(a: str, b: str) -> None:
    """By its definition: the shortest way over all single edits, as far as two of them lead."""

    def edited(word: str) -> set[str]:
        pairs = [(word[:i], word[i:]) for i in range(len(word) + 1)]
        return {
            word,
            *(left + right[1:] for left, right in pairs if right),
            *(left + letter + right for left, right in pairs for letter in "abc"),
            *(left + letter + right[1:] for left, right in pairs for letter in "abc" if right),
            *(left + right[1] + right[0] + right[2:] for left, right in pairs if len(right) > 1),
        }

    found = distance(a, b, 1)
    assert found == (0 if a == b else 1 if b in edited(a) else 2)
    assert distance(a, b, 2) == distance(b, a, 2)


@given(
    st.lists(st.text("abcde1", min_size=1, max_size=8), max_size=30), st.text("abcde1", max_size=8), st.integers(0, 2)
)
def test_no_close_word_is_passed_over(words: list[str], word: str, most: int) -> None:
    by_hand = sorted((distance(word, other, most), i) for i, other in enumerate(words))
    assert WordList(words).close(word, most) == [(edits, i) for edits, i in by_hand if edits <= most]


def test_names_are_one_line_of_bounded_length() -> None:
    assert cleaned("  Type 2\n diabetes\x00 ") == "Type 2 diabetes"
    assert cleaned(" \t") is None and cleaned(None) is None
    assert len(str(cleaned("x" * 1_000))) == LONGEST_NAME and len(str(cleaned("x" * LONGEST_NAME))) == LONGEST_NAME


def test_given_names_come_before_those_of_the_tables() -> None:
    codes = ("ICD10CM:E84", "ICD10CM:E11", "LOINC:2345-7#D1", "LOINC:2345-7#D10", "WARD:7")
    names = names_for(codes, {"ICD10CM:E84": "Mucoviscidosis", "LOINC:2345-7": "Glucose", "X:1": "not of this data"})
    assert names == {
        "ICD10CM:E84": "Mucoviscidosis",
        "ICD10CM:E11": "Type 2 diabetes mellitus",
        "LOINC:2345-7": "Glucose",
    }
    assert [name_of(code, names) for code in codes] == [
        "Mucoviscidosis", "Type 2 diabetes mellitus", "Glucose, decile 1", "Glucose, decile 10", None
    ]  # fmt: skip
