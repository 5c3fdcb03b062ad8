"""Which system a source value is of, where no concept table tells."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ehr.codes.shapes import complete_in, diagnosis_systems, procedure_systems
from ehr.formats.read.omop_systems import SystemsByShape
from tests.formats.reading import read_upload

NINE, TEN, BOTH = ("ICD9DX",), ("ICD10CM",), ("ICD9DX", "ICD10CM")


@pytest.mark.parametrize(
    ("text", "systems"),
    [
        ("25000", NINE), ("250.00", NINE), ("0389", NINE), ("V3000", NINE), ("E8490", NINE), ("e849.0", NINE),
        ("E119", TEN), ("E11.9", TEN), ("S72001A", TEN), ("U071", TEN), ("V270XXA", TEN), ("E87.1", TEN),
        ("E871", BOTH), ("E8889", BOTH), ("V45", BOTH),
        ("225085", ()), ("99999", ()), ("SB (Sinus Bradycardia)", ()), ("", ()), ("2500.0", ()),
    ],
)  # fmt: skip
def test_shapes_of_diagnoses(text: str, systems: tuple[str, ...]) -> None:
    assert diagnosis_systems(text) == systems


def test_shapes_of_procedures() -> None:
    found = [procedure_systems(text) for text in ("9904", "38.93", "4A023N7", "27235", "0042T", "G0008", "225752", "3")]
    assert found == [("ICD9PX",)] * 2 + [("ICD10PCS",), ("CPT",), ("CPT",), ("HCPCS",), (), ()]
    assert complete_in("E871") == TEN and complete_in("E8889") == BOTH


def systems(
    texts: list[str], ids: list[int], days: list[str] | None = None, shapes: SystemsByShape | None = None
) -> list[str]:
    day = None if days is None else pa.array(days)
    known = shapes or SystemsByShape()
    return known.of("condition", pa.array(texts), np.array(ids), day, "CONDITION").to_pylist()


def test_what_could_be_of_both_is_of_its_neighbours() -> None:
    """Ids of a vocabulary lie together; what was decided stays so, and what comes next is decided by the same ids."""
    shapes = SystemsByShape()
    first = systems(["25000", "I10", "E8889", "E8889"], [44_833_365, 35_207_668, 44_830_000, 35_207_100], None, shapes)
    assert first == ["ICD9DX", "ICD10CM", "ICD9DX", "ICD10CM"]
    assert systems(["E871", "V45"], [35_207_099, 44_830_001], None, shapes) == ["ICD10CM", "ICD9DX"]


def test_without_ids_by_company_day_completeness_and_letter() -> None:
    assert systems(["25000", "E8889"], [0, 0]) == ["ICD9DX", "ICD9DX"]  # all others are of ICD-9
    both = ["25000", "I10"]
    days = ["2010-01-01", "2019-01-01", "2010-05-05", "2019-05-05"]
    assert systems([*both, "E8889", "E8889"], [0] * 4, days)[2:] == ["ICD9DX", "ICD10CM"]
    moved = ["2150-01-01"] * 5
    assert systems([*both, "E871", "E8889", "V45"], [0] * 5, moved)[2:] == ["ICD10CM", "ICD10CM", "ICD9DX"]


def test_a_hospitals_own_numbers_are_not_taken_for_icd() -> None:
    """A third of them happen to be codes of ICD-9; with a public concept, a value is what it looks like."""
    own = ["250", "1", "40199", "999999", "4019", "X"]
    assert systems(own, [0] * 6) == ["CONDITION"] * 6
    assert systems(own, [0] * 4 + [44_820_682, 2_000_000_001]) == ["CONDITION"] * 4 + ["ICD9DX", "CONDITION"]


def test_five_digits_are_of_cpt_only_with_a_concept() -> None:
    found = SystemsByShape().of("procedure", pa.array(["27235", "27236"]), np.array([2_105_785, 0]), None, "PROCEDURE")
    assert found.to_pylist() == ["CPT", "PROCEDURE"]


def test_a_system_that_was_named_is_not_guessed(tmp_path: Path) -> None:
    rows = b"person_id,visit_occurrence_id,condition_concept_id,condition_source_value\n1,1,0,E119\n"
    found = read_upload({"condition_occurrence.csv": rows}, tmp_path, default_vocabulary="ICD10GM")
    assert found.records == {"1": {"ICD10GM:E119"}}


def test_concept_ids_may_be_decimal_numbers(tmp_path: Path) -> None:
    """What pandas makes of them as soon as one is missing; ids of people and visits may not, which have more digits."""
    columns = {
        "person_id": pa.array([1, 2]),
        "visit_occurrence_id": pa.array([1, 2]),
        "condition_source_value": pa.array(["25000", "4019"]),
        "condition_concept_id": pa.array([201826.0, None]),
        "condition_source_concept_id": pa.array([44833365.0, float("nan")]),
        "condition_type_concept_id": pa.array([32817.0, 32817.0]),
    }
    pq.write_table(pa.table(columns), tmp_path / "condition_occurrence.parquet")
    result = read_upload([tmp_path / "condition_occurrence.parquet"], unit="visit")
    assert result.records == {"1": {"ICD9DX:25000"}, "2": {"ICD9DX:4019"}}
    assert {(row.standard, row.source, row.type) for row in result.reader.ways} == {
        (201826, 44833365, 32817),
        (0, 0, 32817),
    }
