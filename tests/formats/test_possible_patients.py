"""What a clinician looks at first: ages, newborns, mothers, visits that fit, and facts in the place of their kind."""

import csv
import io
import json
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks._omop_round_trip import cohort_of, read
from ehr.formats import writer_named
from ehr.formats.cdm import SourceCdm, Visit
from ehr.formats.write.protocol import CohortSource
from tests.formats.cdm import load_cdm
from tests.formats.cohorts import stored
from tests.formats.omop_folder import omop_tables
from tests.formats.reading import ROOMY, read_upload
from worker.ingestion.numbering import EMPTY
from worker.ingestion.people import common_bands, common_visits

VISITS = 12


def form(cohort: CohortSource, name: str) -> bytes:
    return b"".join(writer_named(name).write(cohort))


def rows_of(data: bytes, table: str) -> list[dict[str, str]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return list(csv.DictReader(io.TextIOWrapper(archive.open(f"{table}.csv"))))


def resources(cohort: CohortSource) -> list[dict[str, object]]:
    return [json.loads(line) for line in form(cohort, "fhir.ndjson").splitlines()]


def folder_of(path: Path, files: dict[str, bytes]) -> Path:
    """Lines with {i} stand for as many visits as make a code common."""
    path.mkdir()
    files = {name: b"".join(_lines(line) for line in data.splitlines(keepends=True)) for name, data in files.items()}
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def _lines(line: bytes) -> bytes:
    return b"".join(line.replace(b"{i}", b"%d" % i) for i in range(VISITS)) if b"{i}" in line else line


# --- ages ---


def test_nobody_is_without_an_age_because_it_is_rare() -> None:
    bands = ["AGE:0-9"] * 3 + ["AGE:20-29"] * 4 + ["AGE:30-39"] * 8 + ["AGE:60-69"] * 50 + ["AGE:70-79"] * 2
    bands += ["AGE:80-89"] * 12 + ["AGE:90+"] * 5
    found = common_bands([None, *bands], 11)
    assert Counter(found) == {
        None: 1, "AGE:0-9": 3, "AGE:30-39": 12, "AGE:60-69": 52, "AGE:80-89": 17
    }  # fmt: skip
    assert common_bands(list(bands), 1) == bands


AGED = ("AGE:0-9", "AGE:60-69", "ICD10CM:O80", "ICD10CM:Z380", "ICD9DX:25000", "ICD9DX:V3000", "SEX:F")
NEWBORN, CHILD, YOUNG_MOTHER, OLD_MOTHER = [0, 5, 6], [0, 4, 6], [0, 2, 6], [1, 2, 6]


def test_a_birth_fits_the_codes_of_its_record(tmp_path: Path) -> None:
    """A newborn is born on the day of its visit and no child of five gives birth."""
    cohort = stored(tmp_path / "store", [[NEWBORN, CHILD, YOUNG_MOTHER, OLD_MOTHER, [0, 3]]], AGED)
    data = form(cohort, "omop.zip")
    load_cdm(data, tmp_path / "loaded")
    people = rows_of(data, "person")
    assert [row["year_of_birth"] for row in people] == ["2020", "2015", "2011", "1956", "2020"]
    assert [(row["month_of_birth"], row["day_of_birth"]) for row in people[:2]] == [("1", "1"), ("", "")]
    assert (people[4]["month_of_birth"], people[4]["day_of_birth"]) == ("1", "5")
    births = [row["DOB"] for row in rows_of(form(cohort, "mimic-iii.zip"), "PATIENTS")]
    assert births[0] == "2020-01-01 00:00:00" and births[4] == "2020-01-05 00:00:00" and births[2][:4] == "2011"
    patients = [each["birthDate"] for each in resources(cohort) if each["resourceType"] == "Patient"]
    assert patients == ["2020-01-01", "2015", "2011", "1956", "2020-01-05"]
    for name, label in (("omop.zip", "c.zip"), ("fhir.ndjson", "c.ndjson"), ("mimic-iii.zip", "c.zip")):
        back = read_upload({label: form(cohort, name)}, tmp_path, limits=ROOMY)
        assert {"AGE:0-9", "ICD9DX:V3000", "SEX:F"} in back.records.values()


# --- visits ---


def visited(path: Path) -> Path:
    """The small CDM, where who has diabetes is an inpatient."""
    files = omop_tables()
    sick = {line.split(b",")[5] for line in files["condition_occurrence.csv"].splitlines() if b",25000 " in line}
    header, *lines = files["visit_occurrence.csv"].splitlines()
    lines = [line if line.split(b",")[0] in sick else line.replace(b",9201,", b",9202,") for line in lines]
    return folder_of(path, files | {"visit_occurrence.csv": b"\n".join([header, *lines])})


def test_a_visit_is_of_the_kind_its_record_says(tmp_path: Path) -> None:
    encoded, cdm, concepts = read(visited(tmp_path / "cdm"))
    assert {"VISIT:9201", "VISIT:9202"} <= set(encoded.vocabulary.codes)
    cohort = cohort_of(encoded.records, encoded, cdm, concepts)
    data = form(cohort, "omop.zip")
    database = load_cdm(data, tmp_path / "loaded")
    kinds = database.execute(
        "select visit_concept_id, count(*) from visit_occurrence join condition_occurrence using (visit_occurrence_id)"
        " where condition_source_value = '25000' group by all"
    ).fetchall()
    assert [concept for concept, _ in kinds] == [9201]
    names = dict(database.execute("select concept_id, concept_name from concept where domain_id = 'Visit'").fetchall())
    assert names == {9201: "Inpatient Visit", 9202: "Outpatient Visit"}
    assert database.execute("select count(*) from observation").fetchall() == [(0,)]
    classes = Counter(each["class"]["code"] for each in resources(cohort) if each["resourceType"] == "Encounter")  # type: ignore[index]
    assert set(classes) == {"IMP", "AMB"}
    wanted = Counter(len(codes) for codes in read_upload(sorted((tmp_path / "cdm").iterdir())).records.values())
    for name, label in (("omop.zip", "c.zip"), ("fhir.ndjson", "c.ndjson")):
        back = read_upload({label: form(cohort, name)}, tmp_path, limits=ROOMY)
        assert {"VISIT:9201", "VISIT:9202"} <= set(back.encoded.vocabulary.codes)
        assert Counter(map(len, back.records.values())) == wanted


def test_a_visit_without_a_code_is_drawn_and_one_with_a_rare_concept_is_told(tmp_path: Path) -> None:
    codes = ("ICD9DX:25000", "VISIT:0", "VISIT:9203")
    source = SourceCdm(visits=((0.5, Visit(9201, 32818)), (0.5, Visit(9202, 32818))))
    cohort = replace(stored(tmp_path / "store", [[[0]] * 20 + [[0, 1]] * 20 + [[0, 2]]], codes), cdm=lambda: source)
    visits = rows_of(form(cohort, "omop.zip"), "visit_occurrence")
    assert {row["visit_concept_id"] for row in visits[:40]} == {"9201", "9202"}
    assert (visits[40]["visit_concept_id"], visits[40]["visit_type_concept_id"]) == ("9203", "32818")


def test_every_visit_has_a_kind_also_a_rare_one() -> None:
    common, few = [1] * 20 + [2] * 12, [3] * 5 + [EMPTY] * 5
    assert common_visits(np.array(common + few), 11, 0).tolist() == common + [1] * 10
    assert common_visits(np.array([*common, *few, 4]), 11, 0).tolist() == common + [0] * 11
    assert common_visits(np.array([EMPTY] * 30), 11, 0).tolist() == [EMPTY] * 30


def test_a_patient_has_no_kind_of_visit(tmp_path: Path) -> None:
    folder = visited(tmp_path / "cdm")
    for options in ({"unit": "patient"}, {"demographics": False}):
        assert not any(code.startswith("VISIT:") for code in read(folder, **options)[0].vocabulary.codes)


# --- facts ---

SYNTHEA = {
    "conditions.csv": b"START,PATIENT,ENCOUNTER,CODE,DESCRIPTION\n2014-05-22,p{i},e{i},195662009,Sore throat\n",
    "procedures.csv": b"DATE,PATIENT,ENCOUNTER,CODE,DESCRIPTION\n2014-05-22,p{i},e{i},430193006,Reconciliation\n",
    "medications.csv": b"START,PATIENT,ENCOUNTER,CODE,DESCRIPTION\n2014-05-22,p{i},e{i},282464,Acetaminophen\n",
}
PLACES = {"195662009": "condition", "430193006": "procedure", "282464": "drug"}
RESOURCES = {"Condition": "195662009", "Procedure": "430193006", "MedicationRequest": "282464"}


def test_a_procedure_of_snomed_is_no_condition(tmp_path: Path) -> None:
    """From Synthea to OMOP and FHIR, and from FHIR to OMOP."""
    encoded, cdm, _ = read(folder_of(tmp_path / "synthea", SYNTHEA))
    cohort = cohort_of(encoded.records, encoded, cdm, {})
    bundle = form(cohort, "fhir.ndjson")
    found = {each["resourceType"]: each for each in map(json.loads, bundle.splitlines())}
    for kind, code in RESOURCES.items():
        concept = found[kind].get("code") or found[kind]["medicationCodeableConcept"]
        assert concept["coding"][0]["code"] == code
    again, fhir_cdm, _ = read(folder_of(tmp_path / "fhir", {"c.ndjson": bundle}))
    for each in (cohort, cohort_of(again.records, again, fhir_cdm, {})):
        data = form(each, "omop.zip")
        for code, domain in PLACES.items():
            table = {"condition": "condition_occurrence", "procedure": "procedure_occurrence", "drug": "drug_exposure"}
            row, *others = rows_of(data, table[domain])
            assert len(others) == VISITS - 1
            assert (row[f"{domain}_source_value"], row[f"{domain}_type_concept_id"]) == (code, "32817")


@pytest.mark.parametrize("codes_from", ["source", "concept"])
def test_resources_are_of_the_kind_that_rows_were(codes_from: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "cdm", {k: v for k, v in omop_tables().items() if k != "concept.csv"})
    encoded, cdm, concepts = read(folder, codes_from=codes_from)
    kinds = Counter(each["resourceType"] for each in resources(cohort_of(encoded.records, encoded, cdm, concepts)))
    assert {"Condition", "Procedure", "MedicationRequest", "Observation"} <= set(kinds)


def test_rows_of_other_uploads_have_a_type(tmp_path: Path) -> None:
    """Claims are claims, and an admission of MIMIC is a stay in hospital."""
    claims = {"claims.csv": b"DESYNPUF_ID,CLM_ID,CLM_FROM_DT,ICD9_DGNS_CD_1\na{i},{i},20081209,25000\n"}
    mimic = {"DIAGNOSES_ICD.csv": b"ROW_ID,SUBJECT_ID,HADM_ID,SEQ_NUM,ICD9_CODE\n{i},{i},{i},1,25000\n"}
    for name, files, concept, kind in (("claims", claims, "0", "32810"), ("mimic", mimic, "9201", "32817")):
        encoded, cdm, _ = read(folder_of(tmp_path / name, files))
        data = form(cohort_of(encoded.records, encoded, cdm, {}), "omop.zip")
        load_cdm(data, tmp_path / f"{name}-loaded")
        visit, row = rows_of(data, "visit_occurrence")[0], rows_of(data, "condition_occurrence")[0]
        assert (visit["visit_concept_id"], visit["visit_type_concept_id"]) == (concept, kind)
        assert row["condition_type_concept_id"] == rows_of(data, "observation_period")[0]["period_type_concept_id"]
        assert row["condition_type_concept_id"] == kind


def test_what_a_concept_was_coded_as_has_a_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "cdm", {k: v for k, v in omop_tables().items() if k != "concept.csv"})
    encoded, cdm, concepts = read(folder, codes_from="concept")
    rows = rows_of(form(cohort_of(encoded.records, encoded, cdm, concepts), "omop.zip"), "concept")
    named = {row["concept_id"]: (row["vocabulary_id"], row["concept_name"]) for row in rows}
    assert named["44833365"][0] == "ICD9CM" and named["44833365"][1].startswith("Diabetes mellitus without")
