"""What was read from a CDM comes back as it stood there, loads with every constraint, and tells of nobody."""

import csv
import io
import json
import os
import secrets
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy.engine import make_url

from benchmarks._omop_round_trip import asked, cohort_of, measure, read
from ehr.formats import writer_named
from ehr.formats.cdm import Pattern, Row, SourceCdm
from ehr.formats.write.omop_vocabulary import short_names
from tests.formats.cdm import load_cdm, load_postgres
from tests.formats.omop_folder import omop_tables
from tests.formats.reading import DATA
from tests.service.servers import Postgres, new_database

needs_data = pytest.mark.skipif(not DATA.exists(), reason="the shared data is not on this machine")
WAYS = {
    "as recorded": {},
    "without a concept table": {"without": ("concept.csv",)},
    "concepts": {"codes_from": "concept"},
    "concepts without a concept table": {"codes_from": "concept", "without": ("concept.csv",)},
    "by patient": {"unit": "patient", "demographics": False},
}


@pytest.fixture(scope="module")
def server_url(request: pytest.FixtureRequest) -> str:
    if (url := os.environ.get("TEST_DATABASE_URL")) is not None:
        return url
    server: Postgres = request.getfixturevalue("postgres")
    return f"postgresql://postgres@/postgres?host={server.folder}"


def zipped(folder: Path, form: str = "omop.zip", copies: int = 1, **options: Any) -> bytes:
    """A cohort of the upload's own records: what is drawn beside them is what is looked at."""
    encoded, cdm, concepts = read(folder, **options)
    records = encoded.records.take(np.tile(np.arange(min(len(encoded.records), 2_000)), copies))
    return b"".join(writer_named(form).write(cohort_of(records, encoded, cdm, concepts)))


def small(folder: Path, **tables: bytes) -> Path:
    """The small CDM, with these tables in place of its own."""
    folder.mkdir(exist_ok=True)
    for name, data in (omop_tables() | {f"{name}.csv": data for name, data in tables.items()}).items():
        (folder / name).write_bytes(data)
    return folder


def rows_of(data: bytes, table: str) -> list[dict[str, str]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return list(csv.DictReader(io.TextIOWrapper(archive.open(f"{table}.csv"))))


def table(header: str, rows: list[tuple[object, ...]]) -> bytes:
    return "".join(",".join(map(str, row)) + "\n" for row in (header.split(), *rows)).encode()


# --- every event comes back ---


@pytest.mark.parametrize("way", WAYS)
def test_the_same_questions_have_the_same_answers(way: str, tmp_path: Path) -> None:
    folder = small(tmp_path / "cdm")
    (tmp_path / "cohort.zip").write_bytes(zipped(folder, **WAYS[way]))
    found = asked(folder, tmp_path / "cohort.zip", tmp_path)
    assert set(found.values()) == {0}, found
    for name in ("condition_occurrence", "procedure_occurrence", "drug_exposure", "measurement"):
        assert rows_of((tmp_path / "cohort.zip").read_bytes(), name) != []


def test_an_upload_that_was_no_cdm_has_no_concepts_and_says_so(tmp_path: Path) -> None:
    """The questions can be answered with no."""
    folder = small(tmp_path / "cdm")
    encoded, _, _ = read(folder)
    cohort = cohort_of(encoded.records, encoded, None, {})
    (tmp_path / "cohort.zip").write_bytes(b"".join(writer_named("omop.zip").write(cohort)))
    found = asked(folder, tmp_path / "cohort.zip", tmp_path)
    assert found["zero concepts"] > 0 and found["other concepts"] > 0 and found["broken constraints"] == 0


def test_the_figure_of_the_benchmark(tmp_path: Path) -> None:
    assert measure(small(tmp_path / "cdm"), tmp_path, 500) == 0


def test_names_come_back(tmp_path: Path) -> None:
    concepts = {row["concept_id"]: row for row in rows_of(zipped(small(tmp_path)), "concept")}
    assert concepts["201826"]["concept_name"] == "Type 2 diabetes mellitus"
    assert concepts["44833365"]["concept_class_id"] == "5-dig billing code"
    assert (concepts["9201"]["domain_id"], concepts["9201"]["standard_concept"]) == ("Visit", "S")


CONDITIONS = (
    "condition_occurrence_id person_id visit_occurrence_id condition_concept_id condition_start_date"
    " condition_type_concept_id condition_source_value condition_source_concept_id"
)
PEOPLE = "person_id gender_concept_id year_of_birth race_concept_id ethnicity_concept_id"
VISITS = "visit_occurrence_id person_id visit_concept_id visit_start_date visit_end_date visit_type_concept_id"
OBSERVATIONS = CONDITIONS.replace("condition", "observation").replace("start_", "")
ALONE = ("person.csv", "procedure_occurrence.csv", "drug_exposure.csv", "measurement.csv", "concept.csv")


def test_a_code_is_the_rows_it_was(tmp_path: Path) -> None:
    """Two concepts of one code are two rows, of one visit each; two that never go together stay apart; and the second
    row may stand in another table."""
    conditions, observations = [], []
    for visit in range(120):
        conditions.append((4 * visit, visit, visit, 11, "2019-06-01", 32817, "25040", 44824000))
        conditions.append((4 * visit + 1, visit, visit, 12, "2019-06-01", 32817, "25040", 44824000))
        alternative = 21 if visit % 4 else 22
        conditions.append((4 * visit + 2, visit, visit, alternative, "2019-06-01", 32817, "4019", 44820682))
        if visit % 2:
            conditions.append((4 * visit + 3, visit, visit, 31, "2019-06-01", 32810, "V4581", 44824001))
            observations.append((visit, visit, visit, 32, "2019-06-01", 32810, "V4581", 44824001))
    tables = {"condition_occurrence": table(CONDITIONS, conditions), "observation": table(OBSERVATIONS, observations)}
    data = zipped(small(tmp_path / "cdm", **tables), copies=10, without=(*ALONE, "visit_occurrence.csv"))
    database = load_cdm(data, tmp_path / "loaded")
    sets = database.execute(
        "select condition_source_value, list_sort(list(condition_concept_id)) as found, count(*) over ()"
        " from condition_occurrence group by person_id, condition_source_value"
    ).fetchall()
    counts = Counter((code, tuple(found)) for code, found, _ in sets)
    assert set(counts) == {("25040", (11, 12)), ("4019", (21,)), ("4019", (22,)), ("V4581", (31,))}
    assert abs(counts["4019", (22,)] / 1_200 - 0.25) < 0.05
    elsewhere = database.execute(
        "select distinct observation_concept_id, observation_type_concept_id, observation_source_value from observation"
    ).fetchall()
    assert elsewhere == [(32, 32810, "V4581")]


def test_a_rolled_up_code_keeps_its_table_and_claims_no_concept(tmp_path: Path) -> None:
    rows = rows_of(zipped(small(tmp_path), rollup="ccs"), "condition_occurrence")
    assert {row["condition_concept_id"] for row in rows} == {"0"} and len(rows) > 100
    assert {row["condition_type_concept_id"] for row in rows} == {"32817"}


def test_local_concepts_are_not_those_of_the_upload(tmp_path: Path) -> None:
    local = (Pattern(1.0, (Row("condition_occurrence", 2_000_000_001, 2_000_000_000, 32817),)),)
    encoded, _, _ = read(small(tmp_path / "cdm"))
    cohort = cohort_of(encoded.records, encoded, SourceCdm({"ICD9DX:25000": local}), {})
    database = load_cdm(b"".join(writer_named("omop.zip").write(cohort)), tmp_path / "loaded")
    (shared,) = database.execute(
        "select count(*) from condition_occurrence where condition_source_value <> '25000'"
        " and condition_source_concept_id in (2000000000, 2000000001)"
    ).fetchall()
    assert shared == (0,)


# --- it loads ---


@pytest.mark.parametrize("way", ["as recorded", "concepts without a concept table"])
def test_it_loads_with_every_constraint(way: str, server_url: str, tmp_path: Path) -> None:
    data = zipped(small(tmp_path / "cdm"), **WAYS[way])
    load_cdm(data, tmp_path / "loaded")
    load_postgres(data, tmp_path, _fresh(server_url))


@needs_data
@pytest.mark.parametrize(
    ("source", "way"),
    [("omop", way) for way in ("as recorded", "without a concept table", "concepts")] + [("synthea", "as recorded")],
)
def test_real_files_load_and_say_what_they_said(source: str, way: str, server_url: str, tmp_path: Path) -> None:
    """MIMIC's vocabularies have longer names, and its source values more characters, than the CDM has room for."""
    data = zipped(DATA / source, **WAYS[way])
    load_cdm(data, tmp_path / "loaded")
    load_postgres(data, tmp_path, _fresh(server_url))
    if source == "omop":
        found = asked(DATA / "omop", tmp_path / "cohort.zip", tmp_path)
        assert set(found.values()) == {0}, found


def _fresh(server: str) -> str:
    url = make_url(new_database(server, f"cdm_{secrets.token_hex(6)}"))
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def test_names_that_are_too_long_stay_apart() -> None:
    names = [f"a vocabulary with a long name {i}" for i in range(12)] + ["short"]
    found = short_names(names)
    assert set(found) == set(names) and len(set(found.values())) == len(names) and found["short"] == "short"
    assert max(map(len, found.values())) == 20


# --- nobody is told of ---


def test_what_few_patients_have_is_not_told(tmp_path: Path) -> None:
    """Kinds of people and visits, types, and what a concept was coded as: from 11 patients on."""
    people = [(i, 8507, 1950, 8527 if i < 80 else 8516, 38003564, "WHITE" if i < 80 else "BLACK") for i in range(90)]
    visits = [
        (i, i, 9201 if i < 80 else 9203, "2019-06-01", "2019-06-01", 32817 if i % 9 else 32827) for i in range(90)
    ]
    rare = [
        (i, i, i, 201826, "2019-06-01", 32817 if i < 85 else 32820, "25000" if i < 80 else f"secret {i}", 44833365)
        for i in range(90)
    ]
    tables = {
        "person": table(f"{PEOPLE} race_source_value", people),
        "visit_occurrence": table(VISITS, visits),
        "condition_occurrence": table(CONDITIONS, rare),
    }
    folder = small(tmp_path / "cdm", **tables)
    data = zipped(folder, copies=5, codes_from="concept", without=ALONE[1:])
    load_cdm(data, tmp_path / "loaded")
    text = b"".join(
        (tmp_path / "loaded" / name).read_bytes() for name in os.listdir(tmp_path / "loaded") if "csv" in name
    )
    for hidden in (b"secret", b"BLACK", b"8516", b"9203", b"32820", b"32827"):
        assert hidden not in text
    assert {row["race_source_value"] for row in rows_of(data, "person")} == {"WHITE"}
    assert {row["visit_concept_id"] for row in rows_of(data, "visit_occurrence")} == {"9201"}
    assert {row["condition_source_value"] for row in rows_of(data, "condition_occurrence")} == {"25000"}


def test_a_concept_that_few_were_coded_as_is_its_own_source(tmp_path: Path) -> None:
    rows = [(i, i, i, 201826, "2019-06-01", 32817, f"words of {i}", 0) for i in range(30)]
    folder = small(tmp_path / "cdm", condition_occurrence=table(CONDITIONS, rows))
    (row, *_) = rows_of(zipped(folder, codes_from="concept", without=ALONE), "condition_occurrence")
    assert (row["condition_concept_id"], row["condition_source_concept_id"]) == ("201826", "201826")
    assert row["condition_source_value"] == "201826"


def test_what_is_drawn_has_its_shares_and_follows_from_the_seed(tmp_path: Path) -> None:
    people = [(i, 8507, 1950, 8527 if i % 4 else 8516, 0) for i in range(300)]
    tables = omop_tables()
    person = tables["person.csv"].splitlines()[1:]
    people = [(line.split(b",")[0].decode(), *row[1:]) for line, row in zip(person, people, strict=True)]
    encoded, cdm, concepts = read(small(tmp_path / "cdm", person=table(PEOPLE, people)))
    cohort = cohort_of(encoded.records.take(np.tile(np.arange(600), 5)), encoded, cdm, concepts)
    first, again, other = (
        rows_of(b"".join(writer_named("omop.zip").write(replace(cohort, seed=seed))), "person") for seed in (1, 1, 2)
    )
    assert first == again != other
    shares = Counter(row["race_concept_id"] for row in first)
    assert set(shares) == {"8527", "8516"} and abs(shares["8516"] / len(first) - 0.25) < 0.03


# --- MIMIC-III ---


def test_mimic_has_the_diagnoses_that_concepts_were_coded_as(tmp_path: Path) -> None:
    coded = [("E119", 35206882), ("25000", 44833365), ("25000", 44833365)]
    rows = [(i, i, i, 201826, "2019-06-01", 32817, *coded[i % 3]) for i in range(90)]
    folder = small(tmp_path / "cdm", condition_occurrence=table(CONDITIONS, rows))
    data = zipped(folder, "mimic-iii.zip", copies=5, codes_from="concept", without=ALONE)
    diagnoses = rows_of(data, "DIAGNOSES_ICD")
    assert {row["ICD9_CODE"] for row in diagnoses} == {"25000"}
    assert abs(len(diagnoses) / 450 - 2 / 3) < 0.07  # the others were coded in ICD-10, for which there is no table
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert json.loads(archive.read("manifest.json"))["codes_left_out"] == []


@needs_data
@pytest.mark.parametrize("codes_from", ["source", "concept"])
def test_mimic_of_real_files_has_its_tables_filled(codes_from: str) -> None:
    data = zipped(DATA / "omop", "mimic-iii.zip", codes_from=codes_from)
    for name in ("DIAGNOSES_ICD", "PRESCRIPTIONS"):
        assert len(rows_of(data, name)) > 100
    codes = {row["ICD9_CODE"] for row in rows_of(data, "DIAGNOSES_ICD")}
    assert {"25000", "4019"} <= codes and all(code[0] in "0123456789EV" for code in codes)
