"""What a writer writes, its reader reads as the same records; and so do readers that are not ours."""

import csv
import io
import json
import re
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fhir.resources.R4B import get_fhir_model_class
from hypothesis import given, settings
from hypothesis import strategies as st
from meds import DataSchema
from scipy.sparse import load_npz

from ehr.formats import WRITERS
from ehr.formats.concepts import CodeConcepts, Concept
from tests.formats.cdm import load_cdm
from tests.formats.cohorts import Record, written
from tests.formats.reading import ROOMY, read_upload

VOCABULARY = (
    "AGE:0-9",
    "AGE:60-69",
    "AGE:90+",
    "CPT:99254",
    "HCPCS:G0008",
    "ICD10CM:E119",
    "ICD10PCS:B2111ZZ",
    "ICD9DX:0389",
    "ICD9DX:25000",
    "ICD9DX:E8791",
    "ICD9DX:V3000",
    "ICD9PX:0389",
    "LOINC:2345-7",
    "LOINC:2345-7#D1",
    "LOINC:2345-7#D10",
    "MIMICLAB:50912#D7",
    "NDC:00006494300",
    "RXNORM:282464",
    "SEX:F",
    "SEX:M",
    "SNOMED:195662009",
    "WARD:=1+1",
    "WARD:-5",
    'WARD:a "quoted", cell; with | and tab-less text',
    "mimiciv_proc_itemid:228127",
)
MIMIC = {"AGE", "SEX", "CPT", "ICD9DX", "ICD9PX", "LOINC", "MIMICLAB", "NDC"}
# how each form is read back: file name, reader, how a record's number stands in its id
READ_BACK = {
    "long.csv": ("cohort.csv", "long", "{}"),
    "wide.csv": ("cohort.csv", "wide", "{}"),
    "ndjson": ("cohort.ndjson", "long", "{}"),
    "parquet": ("cohort.parquet", "long", "{}"),
    "npz": ("cohort.npz", "wide", "{}"),
    "omop.zip": ("cohort.omop.zip", "omop", "{}"),
    "fhir.ndjson": ("cohort.fhir.ndjson", "fhir", "visit-{}"),
    "meds.parquet": ("cohort.meds.parquet", "meds", "{}"),
    "mimic-iii.zip": ("cohort.mimic-iii.zip", "mimic-iii", "{}"),
}
KEEPS_EMPTY = {"wide.csv", "ndjson", "npz"}

record = st.sets(st.integers(0, len(VOCABULARY) - 1), max_size=8).map(sorted)
cohort = st.lists(st.lists(record, min_size=1, max_size=6), min_size=1, max_size=3)


def expected(name: str, parts: list[list[Record]], pattern: str) -> dict[str, set[str]]:
    """The records as a form can carry them."""
    sets = [{VOCABULARY[code] for code in row} for rows in parts for row in rows]
    if name == "mimic-iii.zip":
        sets = [{code for code in codes if code.split(":")[0] in MIMIC} for codes in sets]
        # a person has one sex and one age there, or none
        for system in ("SEX", "AGE"):
            for codes in sets:
                ambiguous = {code for code in codes if code.startswith(f"{system}:")}
                if len(ambiguous) > 1:
                    codes -= ambiguous
    people = {"omop.zip", "fhir.ndjson", "mimic-iii.zip"}
    told_only_of_the_person = [all(code.startswith(("SEX:", "AGE:")) for code in codes) for codes in sets]
    return {
        pattern.format(i): codes
        for i, codes in enumerate(sets)
        if name in KEEPS_EMPTY or (codes and not (name in people and told_only_of_the_person[i]))
    }


def test_every_form_is_read_back_or_has_a_test_of_its_own() -> None:
    assert {writer.name for writer in WRITERS} == READ_BACK.keys() | {"arrow", "feather"}


@pytest.mark.parametrize("name", READ_BACK)
@settings(max_examples=15, deadline=None)
@given(parts=cohort)
def test_a_cohort_comes_back_as_it_was(name: str, parts: list[list[Record]]) -> None:
    label, reader, pattern = READ_BACK[name]
    wanted = expected(name, parts, pattern)
    # two sexes in one record stand as observations of their own: such a record is there
    if name in ("omop.zip", "fhir.ndjson"):
        wanted |= {
            pattern.format(i): {VOCABULARY[code] for code in row}
            for i, row in enumerate(row for rows in parts for row in rows)
            if len({VOCABULARY[code] for code in row if VOCABULARY[code].startswith("SEX:")}) > 1
            or len({VOCABULARY[code] for code in row if VOCABULARY[code].startswith("AGE:")}) > 1
        }
    if not any(wanted.values()):
        return
    with tempfile.TemporaryDirectory() as folder:
        data = written(Path(folder) / "store", name, parts, VOCABULARY)
        result = read_upload({label: data}, Path(folder), limits=ROOMY)
        assert result.format["name"] == reader and result.rejected == {}
        assert result.records == wanted


@pytest.mark.parametrize("name", ["long.csv", "wide.csv", "ndjson", "parquet", "npz", "meds.parquet"])
def test_codes_without_a_system_come_back(name: str, tmp_path: Path) -> None:
    codes = ("ICD9DX:0389", "abc", "=1+1", "abc:", ":abc")
    label, reader, pattern = READ_BACK[name]
    codes = codes[:-1] if name == "meds.parquet" else codes  # MEDS has no system that is empty
    data = written(tmp_path / "store", name, [[[0, 1, 2], [1, *range(3, len(codes))]]], codes)
    result = read_upload({label: data}, tmp_path, name=reader, limits=ROOMY)
    assert result.rejected == {}
    assert result.records == {pattern.format(0): set(codes[:3]), pattern.format(1): {codes[1], *codes[3:]}}


def test_an_empty_system_is_the_default_one(tmp_path: Path) -> None:
    text = b"record_id,vocabulary,code,value\n1,LOINC,2345-7,5\n1,,0389,\n2,,0389,many\n"
    result = read_upload({"x.csv": text}, tmp_path, default_vocabulary="ICD9DX")
    assert result.records == {"1": {"LOINC:2345-7", "ICD9DX:0389"}}
    assert result.rejected["value-not-a-number"]["rows"] == 1


def test_arrow_is_a_stream_any_arrow_reads(tmp_path: Path) -> None:
    parts = [[[0, 3], []], [[1, 2, 5]]]
    table = pa.ipc.open_stream(written(tmp_path, "arrow", parts, VOCABULARY)).read_all()
    rows = [(r["record_id"], r["code"]) for r in table.to_pylist()]
    assert rows == [(0, VOCABULARY[0]), (0, VOCABULARY[3]), *((2, VOCABULARY[code]) for code in (1, 2, 5))]


def test_npz_is_a_matrix_scipy_loads(tmp_path: Path) -> None:
    parts = [[[0, 3], []], [[1, 2, 5]]]
    matrix = load_npz(io.BytesIO(written(tmp_path, "npz", parts, VOCABULARY)))
    dense = np.zeros((3, len(VOCABULARY)), dtype=np.int8)
    dense[0, [0, 3]] = dense[2, [1, 2, 5]] = 1
    assert matrix.dtype == np.int8 and (matrix.toarray() == dense).all()


PARTS = [[[0, 3, 8, 18], list(range(len(VOCABULARY)))], [[], [5, 6, 16, 17, 21, 22]]]


def test_fhir_resources_are_valid_and_say_that_they_are_test_data(tmp_path: Path) -> None:
    lines = written(tmp_path, "fhir.ndjson", PARTS, VOCABULARY).decode().splitlines()
    resources = [json.loads(line) for line in lines]
    for resource in resources:
        get_fhir_model_class(resource["resourceType"]).model_validate(resource)
        assert [tag["code"] for tag in resource["meta"]["tag"]] == ["HTEST"]
        assert re.fullmatch(r"[A-Za-z0-9\-.]{1,64}", resource["id"])
    assert len({(r["resourceType"], r["id"]) for r in resources}) == len(resources)
    assert {r["resourceType"] for r in resources} == {
        "Patient", "Encounter", "Condition", "Procedure", "MedicationRequest", "Observation"
    }  # fmt: skip
    coded = {c["code"] for r in resources if "code" in r for c in r["code"]["coding"]}
    assert {"250.00", "E879.1", "V30.00", "03.89", "E11.9", "B2111ZZ"} <= coded


def test_meds_are_valid_sorted_and_say_where_their_dates_come_from(tmp_path: Path) -> None:
    table = pq.read_table(io.BytesIO(written(tmp_path, "meds.parquet", PARTS, VOCABULARY)))
    DataSchema.validate(table)
    rows = table.to_pylist()
    assert [row["subject_id"] for row in rows] == sorted(row["subject_id"] for row in rows)
    keys = [(row["subject_id"], row["time"] is not None) for row in rows]
    assert keys == sorted(keys)  # what has no time comes first
    assert b"synthesised" in table.schema.metadata[b"dates"] or b"2020-01-01" in table.schema.metadata[b"dates"]


def test_omop_tables_load_and_refer_to_each_other(tmp_path: Path) -> None:
    database = load_cdm(written(tmp_path / "store", "omop.zip", PARTS, VOCABULARY), tmp_path / "cdm")
    assert database.execute("select count(*) from person").fetchone() == (4,)
    found = database.execute(
        "select vocabulary_id || ':' || condition_source_value from condition_occurrence join concept"
        " on concept_id = condition_source_concept_id where person_id = 1 order by 1"
    ).fetchall()
    assert [row[0] for row in found] == [
        "ICD10CM:E119", "ICD9CM:0389", "ICD9CM:25000", "ICD9CM:E8791", "ICD9CM:V3000", "SNOMED:195662009"
    ]  # fmt: skip
    assert database.execute("select distinct condition_concept_id from condition_occurrence").fetchall() == [(0,)]
    told = json.loads((tmp_path / "cdm" / "manifest.json").read_text())
    assert "carry no information" in told["dates"] and "parts" not in told


def test_omop_keeps_the_concepts_the_upload_gave(tmp_path: Path) -> None:
    diabetes = Concept(201826, "SNOMED", "44054006", "Type 2 diabetes mellitus", "Condition", "Clinical Finding", "S")
    concepts = {"ICD9DX:25000": CodeConcepts(Concept(44833365, "ICD9CM", "250.00", domain_id="Condition"), diabetes)}
    data = written(tmp_path / "store", "omop.zip", PARTS, VOCABULARY, concepts)
    database = load_cdm(data, tmp_path / "cdm")
    found = database.execute(
        "select distinct condition_concept_id, condition_source_concept_id from condition_occurrence"
        " where condition_source_value = '25000'"
    ).fetchall()
    assert found == [(201826, 44833365)]
    back = read_upload({"x.zip": data}, tmp_path, limits=ROOMY)
    assert "ICD9DX:25000" in back.records["0"] and back.reader.concepts["ICD9DX:25000"] == concepts["ICD9DX:25000"]


def test_ids_are_the_same_in_every_form(tmp_path: Path) -> None:
    database = load_cdm(written(tmp_path / "store", "omop.zip", PARTS, VOCABULARY), tmp_path / "cdm")
    omop = {row for (row,) in database.execute("select condition_occurrence_id from condition_occurrence").fetchall()}
    with zipfile.ZipFile(io.BytesIO(written(tmp_path / "other", "mimic-iii.zip", PARTS, VOCABULARY))) as archive:
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open("DIAGNOSES_ICD.csv"))))
        left_out = json.loads(archive.read("manifest.json"))["codes_left_out"]
    assert {int(row["ROW_ID"]) for row in rows} <= omop
    n_events = sum(len(record) for part in PARTS for record in part)
    assert max(omop) < n_events  # numbered without gaps: a million records have ids of 32 bits
    assert "ICD10CM:E119" in left_out and "ICD9DX:25000" not in left_out


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_the_same_cohort_gives_the_same_bytes(writer: object, tmp_path: Path) -> None:
    name = writer.name  # type: ignore[attr-defined]
    assert written(tmp_path / "a", name, PARTS, VOCABULARY) == written(tmp_path / "b", name, PARTS, VOCABULARY)
