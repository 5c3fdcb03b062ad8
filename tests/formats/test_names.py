"""What codes are called: read with an upload, but never what could be a note about one patient; and written again."""

import csv
import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fhir.resources.R4B import get_fhir_model_class
from meds import DataSchema

from ehr.codes.names import LONGEST_NAME
from ehr.formats import WRITERS
from tests.formats.cohorts import written
from tests.formats.omop_folder import omop_tables
from tests.formats.reading import ROOMY, read_upload
from tests.formats.test_readers import fhir, mimic_iv, table
from worker.ingestion.called import given_names


def names_in(files: dict[str, bytes], folder: Path, **options: Any) -> dict[str, str]:
    result = read_upload(files, folder, limits=ROOMY, **options)
    return given_names(result.reader, result.encoded.names)


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


# --- rows that call their codes something ---


def rows(names: Iterable[str], code: str = "X:1", first: int = 0) -> list[dict[str, str]]:
    """A row for each name, of a patient each."""
    whose = enumerate(names, start=first)
    return [{"record_id": f"r{i}", "patient_id": f"p{i}", "code": code, "name": name} for i, name in whose]


def test_a_name_needs_eleven_patients(tmp_path: Path) -> None:
    enough, few = rows(["Scar"] * 11), rows(["Mole"] * 10, "X:2", 20)
    notes = rows([f"seen on {day}" for day in range(40)], "X:3", 40)
    assert names_in({"t.csv": table(enough + few + notes)}, tmp_path) == {"X:1": "Scar"}
    # ten patients with a hundred rows are ten patients
    often = [row | {"record_id": f"{row['record_id']}-{i}"} for row in few for i in range(10)]
    assert names_in({"t.csv": table(often)}, tmp_path) == {}
    # without patients a record is one
    alone = [{name: value for name, value in row.items() if name != "patient_id"} for row in enough + few]
    assert names_in({"t.csv": table(alone)}, tmp_path) == {"X:1": "Scar"}
    # ... but not in an upload that names patients elsewhere
    assert names_in({"a.csv": table(alone), "b.csv": table(few)}, tmp_path) == {}


def test_of_several_names_the_commonest_counts_in_any_order_of_rows(tmp_path: Path) -> None:
    all_rows = rows(["Mole"] * 12 + ["Scar"] * 13 + ["Wart"] * 10)
    for order in (all_rows, all_rows[::-1]):
        assert names_in({"t.csv": table(order)}, tmp_path) == {"X:1": "Scar"}


def test_what_is_beside_another_code_does_not_count(tmp_path: Path) -> None:
    both = rows(["Scar"] * 6, "X:1") + rows(["Scar"] * 6, "X:2", 10)
    assert names_in({"t.csv": table(both)}, tmp_path) == {}


@pytest.mark.parametrize("column", ["name", "description", "display", "Description"])
def test_columns_of_long_tables(column: str, tmp_path: Path) -> None:
    long = [{column if key == "name" else key: value for key, value in row.items()} for row in rows(["Scar"] * 11)]
    assert names_in({"t.csv": table(long)}, tmp_path) == {"X:1": "Scar"}
    assert names_in({"t.parquet": parquet(long)}, tmp_path) == {"X:1": "Scar"}
    lines = "\n".join(json.dumps({key.lower(): value for key, value in row.items()}) for row in long)
    assert names_in({"t.ndjson": lines.encode()}, tmp_path) == {"X:1": "Scar"}


def test_a_name_that_cannot_be_read_costs_no_row(tmp_path: Path) -> None:
    bad = b"record_id,code,name\n" + b"".join(b"r%d,X:1,caf\xe9\n" % i for i in range(11))
    result = read_upload({"t.csv": bad}, tmp_path)
    assert len(result.records) == 11 and result.rejected == {} and result.encoded.names == {}
    numbers = [{"record_id": f"r{i}", "code": "X:1", "name": 1.5, "description": "Scar"} for i in range(11)]
    result = read_upload({"t.parquet": parquet(numbers)}, tmp_path)
    assert len(result.records) == 11 and result.encoded.names == {}
    twice = b"record_id,code,name,name\n" + b"".join(b"r%d,X:1,a,b\n" % i for i in range(11))
    assert len(read_upload({"t.csv": twice}, tmp_path).records) == 11


def test_long_names_are_cut(tmp_path: Path) -> None:
    (name,) = names_in({"t.csv": table(rows(["Scar " * 100] * 11))}, tmp_path).values()
    assert len(name) == LONGEST_NAME and name.startswith("Scar Scar")


def test_a_rolled_up_code_is_not_called_like_the_finer_one(tmp_path: Path) -> None:
    fine = [row | {"vocabulary": "ICD10CM"} for row in rows(["With hyperglycemia"] * 11, "E11.65")]
    result = read_upload({"t.csv": table(fine)}, tmp_path, rollup="icd3")
    assert result.encoded.vocabulary.codes == ("ICD10CM:E11",)
    assert "ICD10CM:E11" not in given_names(result.reader, result.encoded.names)


# --- each format ---


def test_synthea(tmp_path: Path) -> None:
    names = {"CODE": "195662009", "DESCRIPTION": "Viral sinusitis"}
    found = [{"START": "2020-01-01", "PATIENT": f"p{i}", "ENCOUNTER": f"e{i}", **names} for i in range(11)]
    assert names_in({"conditions.csv": table(found)}, tmp_path) == {"SNOMED:195662009": "Viral sinusitis"}
    other = [{"med_pat_id": i, "med_enc_id": i, "med_code": 7, "med_description": "Pill"} for i in range(11)]
    assert names_in({"medications.csv": table(other)}, tmp_path, name="synthea") == {"RXNORM:7": "Pill"}


def test_fhir_displays(tmp_path: Path) -> None:
    patients = [json.loads(json.dumps(fhir()).replace("Patient/p", f"Patient/p{i}")) for i in range(11)]
    lines = []
    for i, resources in enumerate(patients):
        for each in resources:
            if each.get("code", {}).get("coding"):
                each["code"]["coding"][-1]["display"] = f"called {each['code']['coding'][-1]['code'].lower()}"
                each |= {"subject": {"reference": f"Patient/p{i}"}, "encounter": {"reference": f"Encounter/e{i}"}}
            lines.append(json.dumps(each))
    names = names_in({"x.ndjson": "\n".join(lines).encode()}, tmp_path)
    assert names["ICD10CM:E119"] == "called e11.9" and names["LOINC:2345-7"] == "called 2345-7"


def test_dictionaries_need_no_patients(tmp_path: Path) -> None:
    """Whoever is in them, it is no patient."""
    titles = [("9", "25000", "Diabetes"), ("10", "E119", "Type 2 diabetes"), ("10", "Z000", "not of this data")]
    dictionaries = {
        "d_icd_diagnoses.csv": table([{"icd_code": c, "icd_version": v, "long_title": t} for v, c, t in titles]),
        "d_icd_procedures.csv": table([{"icd_code": "0389", "icd_version": "9", "long_title": "Spinal operation"}]),
        "d_hcpcs.csv": table([{"code": "G0378", "short_description": "Observation per hour"}]),
    }
    result = read_upload(mimic_iv() | dictionaries, tmp_path)
    assert result.format["name"] == "mimic-iv" and result.format["ignored"] == []
    names = given_names(result.reader, result.encoded.names)
    assert names | {"ICD10CM:Z000": ""} == {
        "ICD9DX:25000": "Diabetes", "ICD10CM:E119": "Type 2 diabetes", "ICD10CM:Z000": "",
        "ICD9PX:0389": "Spinal operation", "HCPCS:G0378": "Observation per hour", "MIMICLAB:50912": "Creatinine",
    }  # fmt: skip


def test_mimic_iii_dictionaries(tmp_path: Path) -> None:
    who = {"ROW_ID": 1, "SUBJECT_ID": 1, "HADM_ID": 1}
    files = {
        "DIAGNOSES_ICD.csv": table([{**who, "ICD9_CODE": "0389 "}]),
        "LABEVENTS.csv": table([{**who, "ITEMID": 50809, "VALUENUM": 5.1}]),
        "D_ICD_DIAGNOSES.csv": table([{"ROW_ID": 1, "ICD9_CODE": "0389", "LONG_TITLE": "Sepsis"}]),
        "D_LABITEMS.csv": table([{"ROW_ID": 1, "ITEMID": 50809, "LABEL": "Glucose", "LOINC_CODE": "2339-0"}]),
    }
    names = names_in(files, tmp_path)
    assert names["ICD9DX:0389"] == "Sepsis" and names["LOINC:2339-0"] == "Glucose"


def test_omop_concepts(tmp_path: Path) -> None:
    names = names_in(omop_tables(40), tmp_path)
    assert names["ICD9DX:25000"] == "Diabetes without complication" and names["LOINC:2345-7"] == "Glucose in Serum"


def test_meds_metadata(tmp_path: Path) -> None:
    data = parquet([{"subject_id": i, "time": None, "code": "ICD10CM//E11", "numeric_value": None} for i in range(3)])
    codes = parquet([{"code": "ICD10CM//E11", "description": "Type 2 diabetes", "parent_codes": ["ICD10CM/E"]}])
    assert names_in({"0.parquet": data, "codes.parquet": codes}, tmp_path) == {"ICD10CM:E11": "Type 2 diabetes"}
    # a table of people is no table of codes, whatever else it has
    of_someone = {"description": "of Mrs Smith", "parent_codes": ["x"], "patient_id": "1"}
    people = parquet([{"code": "ICD10CM//E11", **of_someone}])
    assert names_in({"0.parquet": data, "codes.parquet": people}, tmp_path) == {}


# --- and out again ---

CODES = ("ICD9DX:25000", "LOINC:2345-7#D3", "NDC:1", "WARD:=1")
NAMES = {"ICD9DX:25000": 'Diabetes, "type II"', "LOINC:2345-7": "Glucose", "WARD:=1": "=HYPERLINK(1)"}
PARTS = [[[0, 1, 2, 3], []], [[0]] * 12]


def out(name: str, folder: Path, names: dict[str, str] | None = NAMES) -> bytes:
    return written(folder, name, PARTS, CODES, names=names)


@pytest.mark.parametrize(
    "name", [writer.name for writer in WRITERS if writer.has_names and writer.name not in ("arrow", "feather")]
)
def test_names_change_no_record(name: str, tmp_path: Path) -> None:
    extension = name if "." in name else f"x.{name}"
    files = [{extension: out(name, tmp_path / str(names), names)} for names in (NAMES, None)]
    named, plain = (read_upload(each, tmp_path, limits=ROOMY) for each in files)
    assert named.records == plain.records and named.records


@pytest.mark.parametrize("name", ["long.csv", "ndjson", "parquet", "fhir.ndjson", "meds.parquet"])
def test_names_that_are_written_are_read_again(name: str, tmp_path: Path) -> None:
    extension = name if "." in name else f"x.{name}"
    names = names_in({extension: out(name, tmp_path / "store")}, tmp_path)
    assert names == {"ICD9DX:25000": NAMES["ICD9DX:25000"]}  # which thirteen records have


def test_where_names_stand(tmp_path: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(out("long.csv", tmp_path / "l").decode(), newline="")))
    assert [line["name"] for line in lines[:4]] == ['Diabetes, "type II"', "Glucose, decile 3", "", "'=HYPERLINK(1)"]
    objects = [json.loads(line) for line in out("ndjson", tmp_path / "n").decode().splitlines()]
    assert objects[0]["names"] == ['Diabetes, "type II"', "Glucose, decile 3", None, "=HYPERLINK(1)"]
    assert objects[1] == {"record_id": 1, "codes": [], "names": []}
    rows = pq.read_table(io.BytesIO(out("parquet", tmp_path / "p"))).to_pylist()
    stream = pa.ipc.open_stream(out("arrow", tmp_path / "a")).read_all().to_pylist()
    assert rows == stream and [row["name"] for row in rows[:4]] == objects[0]["names"]
    shard = pq.read_table(io.BytesIO(out("meds.parquet", tmp_path / "m")))
    DataSchema.validate(shard)
    assert shard["description"].to_pylist()[:4] == objects[0]["names"]
    with zipfile.ZipFile(io.BytesIO(out("npz", tmp_path / "z"))) as archive:
        assert archive.read("names.txt").decode().split("\n") == [each or "" for each in objects[0]["names"]]
    with zipfile.ZipFile(io.BytesIO(out("mimic-iii.zip", tmp_path / "i"))) as archive:
        titles, labs = (archive.read(f"{name}.csv").decode() for name in ("D_ICD_DIAGNOSES", "D_LABITEMS"))
    assert '25000,"Diabetes, ""type II""","Diabetes, ""type II"""' in titles and ",Glucose," in labs


def test_omop_always_says_what_a_code_is_called(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(written(tmp_path, "omop.zip", PARTS, CODES, names=NAMES))) as archive:
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open("concept.csv"))))
    names = {row["concept_code"]: row["concept_name"] for row in rows}
    assert names["25000"] == 'Diabetes, "type II"' and names["2345-7"] == "Glucose" and names["1"] == "1"


def test_fhir_always_says_what_a_code_is_called(tmp_path: Path) -> None:
    for names in (NAMES, None):
        resources = [json.loads(line) for line in out("fhir.ndjson", tmp_path / str(names is None), names).splitlines()]
        for each in resources:
            get_fhir_model_class(each["resourceType"]).model_validate(each)
        codings = {c["code"]: c.get("display") for r in resources for c in r.get("code", {}).get("coding", [])}
        if names is None:  # the tables know it
            assert codings["250.00"].startswith("Diabetes mellitus") and codings["2345-7"] is None
        else:
            assert codings == {"250.00": 'Diabetes, "type II"', "2345-7": "Glucose", "=1": "=HYPERLINK(1)"}
