"""Labs with numbers, there and back: units are read, and every form writes the same numbers of the same records."""

import csv
import io
import json
import tempfile
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from meds import DataSchema

from benchmarks._fhir_check import faults
from ehr.formats import writer_named
from ehr.formats.write.protocol import CohortSource
from ehr.labs import UCUM, LabCurve, LabUnit
from tests.formats.cdm import load_cdm
from tests.formats.cohorts import stored
from tests.formats.labs import LAB, measured
from tests.formats.reading import ROOMY, Result, read_upload
from worker.ingestion.lab_curves import decile_of

MIMIC_LAB = "MIMICLAB:50912"
CODES = (
    "AGE:60-69",
    "ICD9DX:25000",
    LAB,
    *(f"{LAB}#D{part}" for part in (1, 2, 7, 10)),
    *(f"{MIMIC_LAB}#D{part}" for part in (1, 2, 3)),
    "SEX:F",
)
CURVES = {
    LAB: replace(measured("one decimal", 3_000).curve, unit=LabUnit("mg/dL", "mg/dL", UCUM, 8840)),
    MIMIC_LAB: LabCurve.between([40, 60, 80, 90, 100, 110, 120, 130, 150]),  # from before there were curves
}
UNITS = {LAB: "mg/dL", MIMIC_LAB: ""}
RECORDS = [[*range(len(CODES))], [], [1, 2], *([[0, code, 10] for code in range(3, 10)] * 30)]
Numbers = Counter[tuple[int, str, float, str]]


@pytest.fixture
def cohort(tmp_path: Path) -> CohortSource:
    return replace(stored(tmp_path / "store", [RECORDS[:5], RECORDS[5:]], CODES), lab_curves=CURVES, seed=7)


def test_every_form_has_the_same_numbers(cohort: CohortSource, tmp_path: Path) -> None:
    files = {name: b"".join(writer_named(name).write(cohort)) for name in FORMS}
    found = {name: form(files[name]) for name, form in FORMS.items()}
    wanted = found["long.csv"]
    assert len(wanted) > 60 and all(numbers == wanted for numbers in found.values())
    rows = Counter((record, CODES[code]) for record, codes in enumerate(RECORDS) for code in codes)
    for lab, curve in CURVES.items():
        mine = {(record, value) for record, name, value, _ in wanted if name == lab}
        parts = {(record, f"{lab}#D{decile_of(np.float32([value]), curve.cuts)[0] + 1}") for record, value in mine}
        # the first decile of the old lab has no number: how far it reaches is not known
        assert parts == {row for row in rows if row[1].startswith(f"{lab}#") and row[1] != f"{MIMIC_LAB}#D1"}
    assert {unit for _, lab, _, unit in wanted if lab == LAB} == {"mg/dL"}
    assert all(value == round(value, 1) for _, lab, value, _ in wanted if lab == LAB)
    assert all(value == int(value) for _, lab, value, _ in wanted if lab == MIMIC_LAB)


def test_without_curves_nothing_has_a_number(tmp_path: Path) -> None:
    source = stored(tmp_path, [RECORDS], CODES)
    text = b"".join(writer_named("long.csv").write(source)).decode().splitlines()
    assert text[0] == "record_id,vocabulary,code" and "0,LOINC,2345-7#D7" in text
    assert pq.read_schema(pa.BufferReader(b"".join(writer_named("parquet").write(source)))).names == [
        "record_id",
        "code",
    ]


def of_long(data: bytes) -> Numbers:
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    decided = {row["code"] for row in rows if not row["value"]}
    assert "50912#D1" in decided and "2345-7" in decided and "2345-7#D1" not in decided
    named = [(int(r["record_id"]), f"{r['vocabulary']}:{r['code']}", r["value"], r["unit"]) for r in rows]
    return Counter((record, lab, float(value), unit) for record, lab, value, unit in named if value)


def of_rows(table: pa.Table) -> Numbers:
    """The code keeps its decile, for those who know it by that."""
    rows = [row for row in table.to_pylist() if row["value"] is not None]
    assert all("#D" in row["code"] for row in rows)
    return Counter((r["record_id"], r["code"].split("#")[0], r["value"], r["unit"] or "") for r in rows)


def of_meds(data: bytes) -> Numbers:
    table = pq.read_table(io.BytesIO(data))
    DataSchema.validate(table)
    rows = [row for row in table.to_pylist() if row["numeric_value"] is not None]
    return Counter(
        (r["subject_id"], r["code"].replace("//", ":"), float(str(np.float32(r["numeric_value"]))), r["unit"] or "")
        for r in rows
    )


def of_fhir(data: bytes) -> Numbers:
    assert faults(data.splitlines()) == {}
    resources = [json.loads(line) for line in data.splitlines()]
    found: Numbers = Counter()
    for resource in (r for r in resources if "valueQuantity" in r):
        quantity, (coding,) = resource["valueQuantity"], resource["code"]["coding"]
        lab = LAB if coding["code"] == "2345-7" else MIMIC_LAB
        coded = {"system": UCUM, "code": "mg/dL", "unit": "mg/dL"} if lab == LAB else {}
        assert quantity == {"value": quantity["value"], **coded}
        found[int(resource["subject"]["reference"].split("-")[1]), lab, quantity["value"], UNITS[lab]] += 1
    assert sum(r.get("valueString") == "D1" for r in resources) == 31
    return found


def of_mimic(data: bytes) -> Numbers:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        labs, items = (
            list(csv.DictReader(io.TextIOWrapper(archive.open(f"{name}.csv")))) for name in ("LABEVENTS", "D_LABITEMS")
        )
    lab_of = {row["ITEMID"]: LAB if row["LOINC_CODE"] else MIMIC_LAB for row in items}
    assert {row["VALUE"] for row in labs if not row["VALUENUM"]} == {"D1", ""}
    assert all(row["VALUE"] == row["VALUENUM"] for row in labs if row["VALUENUM"])
    return Counter(
        (int(r["SUBJECT_ID"]), lab_of[r["ITEMID"]], float(r["VALUENUM"]), r["VALUEUOM"]) for r in labs if r["VALUENUM"]
    )


def of_omop(data: bytes) -> Numbers:
    with tempfile.TemporaryDirectory() as folder:
        database = load_cdm(data, Path(folder))
        found = database.execute(
            "select person_id, measurement_source_value, value_as_number, coalesce(unit_source_value, ''),"
            " value_source_value, unit_concept_id from measurement where value_as_number is not null"
        ).fetchall()
        units = database.execute("select concept_code, vocabulary_id from concept where concept_id = 8840").fetchall()
        without = database.execute("select distinct value_source_value from measurement where value_as_number is null")
        assert {text for (text,) in without.fetchall()} == {"D1", None}
    assert units == [("mg/dL", "UCUM")]
    assert all(float(text) == float(value) and unit in (None, 8840) for _, _, value, _, text, unit in found)
    return Counter(
        (person, LAB if lab == "2345-7" else MIMIC_LAB, float(value), unit) for person, lab, value, unit, *_ in found
    )


FORMS = {
    "omop.zip": of_omop,
    "long.csv": of_long,
    "parquet": lambda data: of_rows(pq.read_table(io.BytesIO(data))),
    "arrow": lambda data: of_rows(pa.ipc.open_stream(data).read_all()),
    "meds.parquet": of_meds,
    "fhir.ndjson": of_fhir,
    "mimic-iii.zip": of_mimic,
}
BACK = {"long.csv": "c.csv", "parquet": "c.parquet", "meds.parquet": "c.parquet", "fhir.ndjson": "c.ndjson"}
BACK |= {"mimic-iii.zip": "c.zip", "omop.zip": "c.zip"}


@pytest.mark.parametrize("name", BACK)
def test_what_was_written_with_numbers_is_read_with_them(name: str, tmp_path: Path) -> None:
    """As another data set's source: the lab with its unit, and values distributed as before."""
    curve = replace(CURVES[LAB], unit=LabUnit("mg/dL"))
    records = [[code] for code in range(10)] * 40
    codes = tuple(f"{LAB}#D{part}" for part in range(1, 11))
    source = replace(stored(tmp_path / "store", [records], codes), lab_curves={LAB: curve}, seed=7)
    data = b"".join(writer_named(name).write(source))
    result = read_upload({BACK[name]: data}, tmp_path, limits=ROOMY)
    again = result.encoded.curves[LAB]
    assert result.rejected == {} and list(result.encoded.curves) == [LAB]
    assert again.unit == LabUnit("mg/dL") and again.decimals == 1
    assert again.cuts == pytest.approx(curve.cuts, abs=0.15)
    assert set(result.encoded.vocabulary.codes) <= set(codes)


def table(rows: list[dict[str, object]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def long_labs(units: list[str], values: list[float], tmp_path: Path) -> Result:
    rows = [
        {"record_id": i, "vocabulary": "LOINC", "code": "2345-7", "value": value, "unit": unit}
        for i, (unit, value) in enumerate(zip(units, values, strict=True))
    ]
    return read_upload({"x.csv": table(rows)}, tmp_path, limits=ROOMY, test_share=0, holdout_share=0)


def test_one_unit_counts_and_values_in_others_are_left_out(tmp_path: Path) -> None:
    """5 mmol/l among 100 mg/dl would be the lowest decile of every patient. What is left is that the lab was taken."""
    rng = np.random.default_rng(0)
    units = ["mg/dL"] * 200 + ["MG/DL "] * 150 + ["mmol/L"] * 120 + [""] * 30
    values = [*rng.normal(100, 10, 350), *rng.normal(5.5, 0.5, 120), *rng.normal(100, 10, 30)]
    result = long_labs(units, values, tmp_path)
    curve = result.encoded.curves[LAB]
    assert curve.unit == LabUnit("mg/dL") and min(curve.cuts) > 80
    summary = result.encoded.summary["labs"]
    assert summary == {"with_deciles": 1, "with_unit": 1, "too_few": 0, "rows_in_other_units": 150}
    with_decile = [any("#D" in code for code in result.records[str(i)]) for i in range(500)]
    assert with_decile == [True] * 350 + [False] * 150
    assert result.records["499"] == {LAB}


def test_rows_in_other_units_are_not_told_where_they_are_few(tmp_path: Path) -> None:
    result = long_labs(["mg/dL"] * 200 + ["mmol/L"] * 10, [*range(200), *range(10)], tmp_path)
    assert result.encoded.summary["labs"]["rows_in_other_units"] is None


def test_a_lab_without_units_has_none(tmp_path: Path) -> None:
    result = long_labs([""] * 200, list(range(200)), tmp_path)
    assert result.encoded.curves[LAB].unit is None and result.encoded.summary["labs"]["with_unit"] == 0


def test_a_unit_is_told_if_eleven_patients_spell_it_so(tmp_path: Path) -> None:
    spellings = ["".join(c.upper() if i >> j & 1 else c for j, c in enumerate("arbitrary")) for i in range(200)]
    result = long_labs(spellings, list(range(200)), tmp_path)
    assert result.encoded.curves[LAB].unit is None and result.encoded.summary["labs"]["rows_in_other_units"] == 0


def test_numbers_that_are_none_are_no_numbers(tmp_path: Path) -> None:
    result = long_labs(["g"] * 203, [*range(200), 1e39, 1e300, -1e39], tmp_path)
    assert result.encoded.curves[LAB].cuts[-1] < 200 and result.records["202"] == {LAB}


def test_omop_units_come_from_text_concept_table_or_id(tmp_path: Path) -> None:
    rows = [
        {"measurement_id": i, "person_id": i, "visit_occurrence_id": i, "measurement_source_value": lab,
         "measurement_source_concept_id": 0, "value_as_number": i, "unit_source_value": text, "unit_concept_id": unit}
        for lab, text, unit in (("a", "mg per dl", 8840), ("b", "", 8840), ("c", "", 8753), ("d", "x", ""))
        for i in range(150)
    ]  # fmt: skip
    concepts = [{"concept_id": 8840, "vocabulary_id": "UCUM", "concept_code": "mg/dL"}]
    files = {"measurement.csv": table(rows), "concept.csv": table(concepts)}
    result = read_upload(files, tmp_path, limits=ROOMY)
    known = result.reader.lab_units.known()
    units = {lab[-1]: curve.in_unit(known).unit for lab, curve in result.encoded.curves.items()}
    assert units == {
        "a": LabUnit("mg per dl", "mg/dL", UCUM, 8840),
        "b": LabUnit("mg/dL", "mg/dL", UCUM, 8840),
        "c": LabUnit("", concept_id=8753),
        "d": LabUnit("x"),
    }


def test_fhir_units_are_told_by_their_code(tmp_path: Path) -> None:
    def observation(i: int) -> bytes:
        text = "milligram per deciliter" if i % 3 else "mg/dL"
        quantity = {"value": i / 10, "unit": text, "system": UCUM, "code": "mg/dL"}
        coding = {"system": "http://loinc.org", "code": "2345-7"}
        who = {"subject": {"reference": f"Patient/{i}"}, "encounter": {"reference": f"Encounter/{i}"}}
        return json.dumps(
            {"resourceType": "Observation", "code": {"coding": [coding]}, "valueQuantity": quantity, **who}
        ).encode()

    huge = observation(0).replace(b"0.0", b"1" + b"0" * 400)
    result = read_upload({"o.ndjson": b"\n".join([*map(observation, range(200)), huge])}, tmp_path, limits=ROOMY)
    curve = result.encoded.curves[LAB].in_unit(result.reader.lab_units.known())
    assert curve.unit == LabUnit("milligram per deciliter", "mg/dL", UCUM) and curve.decimals == 1
