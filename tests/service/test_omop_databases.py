"""An OMOP CDM in Postgres, in and out: what went in as OMOP comes out as OMOP, by SQL alone."""

from typing import Any

import pyarrow.parquet as pq
import pytest

from ehr.formats.cdm54 import columns, foreign_keys, tables
from tests.formats.omop_folder import omop_tables
from tests.service.doors import Door, asked_of, load_cdm

PATH = "/datasets/by-reference"
SOURCE = {"kind": "omop", "connection": "warehouse", "cdm_schema": "cdm"}
CDM = omop_tables(300)
MORE = (
    "create schema results",
    "create table results.cohort (cohort_definition_id integer, subject_id bigint, cohort_start_date date)",
    "insert into results.cohort select 7, person_id, '2019-06-01' from cdm.person where person_id % 2 = 0",
    "insert into results.cohort select 8, person_id, '2019-06-01' from cdm.person",
    # what the reader does not read stays in the database
    "alter table cdm.person add column name_of_person text default 'Jane Doe'",
    # concepts that nobody refers to: a vocabulary has millions
    "insert into cdm.concept select n, 'x', 'Drug', 'RxNorm', 'y', 'S', n::text from generate_series(9, 5000) n",
)


@pytest.fixture(scope="module")
def warehouse(shared_door: Door) -> str:
    load_cdm(shared_door.database, "cdm", CDM, MORE)
    return shared_door.database


@pytest.fixture(scope="module")
def cohort(shared_door: Door, warehouse: str) -> str:
    """A cohort of a model of the whole CDM, made by the service."""
    dataset = shared_door.do(PATH, source=SOURCE, min_records=1, may_be_attacked=False)
    assert dataset["state"] == "succeeded", dataset["error"]
    trained = shared_door.do(
        "/train", dataset_id=dataset["result"]["dataset_id"], generator="independent", preset="auto"
    )
    assert trained["state"] == "succeeded", trained["error"]
    made = shared_door.do("/generate", model_id=trained["result"]["model_id"], n=300, evaluate=False)
    assert made["state"] == "succeeded", made["error"]
    answer = shared_door.http.post(f"/cohorts/{made['id']}/release", json={"reason": "for a test"})
    assert answer.status_code in (200, 201, 409), answer.text
    return str(made["id"])


# --- in ---


@pytest.mark.usefixtures("warehouse")
def test_a_database_is_what_an_upload_of_its_tables_is(door: Door) -> None:
    uploaded = door.uploaded(CDM, min_records=1)
    job = door.do(PATH, source=SOURCE, min_records=1)
    fetched = door.dataset(job)
    assert fetched["data_hash"] == uploaded["data_hash"]
    assert fetched["name"] == "warehouse cdm"
    assert job["result"]["summary"]["format"]["name"] == "omop"
    assert fetched["summary"] == uploaded["summary"] | {"format": fetched["summary"]["format"]}
    assert not door.left(job)


@pytest.mark.usefixtures("warehouse")
def test_only_the_people_of_a_cohort(door: Door) -> None:
    some, everyone = (
        door.dataset(door.do(PATH, source={**SOURCE, "cohort_schema": "results", "cohort_id": number}, min_records=1))
        for number in (7, 8)
    )
    assert everyone["data_hash"] == door.uploaded(CDM, min_records=1)["data_hash"]
    assert some["summary"]["patients"] == everyone["summary"]["patients"] / 2
    empty = door.do(PATH, source={**SOURCE, "cohort_schema": "results", "cohort_id": 9})
    assert (empty["state"], empty["error"]["type"]) == ("failed", "bad-data")


@pytest.mark.usefixtures("warehouse")
def test_nothing_more_than_is_read_leaves_the_database(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Any] = {}
    whole = door.runtime.store.local_path

    def local_path(key: str) -> Any:
        with whole(key) as path:
            kept[key.rsplit("-", 1)[-1]] = pq.read_table(path)
        return whole(key)

    monkeypatch.setattr(door.runtime.store, "local_path", local_path)
    door.dataset(door.do(PATH, source={**SOURCE, "cohort_schema": "results", "cohort_id": 7}, min_records=1))
    assert kept["person"].num_rows == 75
    assert "name_of_person" not in kept["person"].column_names
    assert kept["concept"].num_rows < 50


@pytest.mark.usefixtures("warehouse")
def test_what_a_database_refuses_is_told(door: Door) -> None:
    missing = {**SOURCE, "cdm_schema": "synthetic_nowhere"}
    assert "has no table of events" in door.do(PATH, source=missing)["error"]["detail"]
    no_cohort = door.do(PATH, source={**SOURCE, "cohort_id": 7})
    assert no_cohort["error"]["detail"].startswith("there is no table cohort with cohort_definition_id")
    assert "give its cohort_id too" in door.refused(PATH, source={**SOURCE, "cohort_schema": "results"})
    for trick in ('cdm"; drop schema cdm; --', "cdm.person", ""):
        assert "cdm_schema" in door.refused(PATH, source={**SOURCE, "cdm_schema": trick})
    assert door.refused(PATH, source={**SOURCE, "connection": "postgresql://x/y"})


def test_a_database_that_is_away_fails_the_job(door: Door) -> None:
    away = '[{"kind": "postgres", "name": "warehouse", "url": "postgresql://u@127.0.0.1:1/x", "schemas": ["cdm"]}]'
    job = door.limited(sources=away).do(PATH, source=SOURCE)
    assert job["error"] == {"type": "outside", "detail": "the database 'warehouse' answers OperationalError"}


# --- out ---


def sink(schema: str, **more: Any) -> dict[str, Any]:
    return {"kind": "omop", "connection": "warehouse", "cdm_schema": schema, **more}


def test_what_went_in_as_omop_comes_out_as_omop(shared_door: Door, warehouse: str, cohort: str) -> None:
    job = shared_door.do(f"/cohorts/{cohort}/exports", sink=sink("synthetic_a"))
    assert job["state"] == "succeeded", job["error"]
    assert job["result"] == {"cohort_id": cohort, "written": "warehouse.synthetic_a", "records": 300}

    def ask(query: str) -> Any:
        return asked_of(warehouse, query, "synthetic_a")

    # the types and keys of the CDM were kept by the database as it took the rows; what they refer to is there
    assert {name for (name,) in ask("select table_name from information_schema.tables"
                                    " where table_schema = 'synthetic_a'")} == set(tables())  # fmt: skip
    for key in foreign_keys():
        query = f"select count(*) from {key.table} where {key.name} is not null and {key.name} not in"
        assert ask(f"{query} (select {key.refers_to}_id from {key.refers_to})") == [(0,)], key
    assert ask("select count(*) from person") == [(300,)]
    # the same concepts, in about the same shares, in the same tables
    shares = """
        select c.concept_code, c.vocabulary_id, count(distinct o.visit_occurrence_id) * 1.0 /
        (select count(*) from {0}.visit_occurrence) from {0}.{1}_occurrence o
        join {0}.concept c on c.concept_id = o.{1}_source_concept_id group by 1, 2"""
    for domain in ("condition", "procedure"):
        real, synthetic = (
            {(code, system): float(share) for code, system, share in ask(shares.format(schema, domain))}
            for schema in ("cdm", "synthetic_a")
        )
        assert real.keys() == synthetic.keys()
        assert max(abs(real[code] - synthetic[code]) for code in real) < 0.15
    units = "select distinct u.concept_code from measurement m join concept u on u.concept_id = m.unit_concept_id"
    assert ask(units) == [("mmol/L",)]
    assert len(columns("person")) == ask("select count(*) from information_schema.columns where table_name = 'person'"
                                         " and table_schema = 'synthetic_a'")[0][0]  # fmt: skip


def test_tables_of_others_are_never_replaced(door: Door, warehouse: str) -> None:
    one, other = (door.caller.cohort([records], evaluate=False) for records in ([[0, 1], [1]], [[2]]))
    for each in (one, other):
        door.http.post(f"/cohorts/{each}/release", json={"reason": "for a test"})

    def written(cohort: str, **where: Any) -> dict[str, Any]:
        return door.do(f"/cohorts/{cohort}/exports", sink=sink(**where))

    load_cdm(warehouse, "synthetic_theirs", {"person.csv": CDM["person.csv"]})
    for replace in (False, True):
        job = written(one, schema="synthetic_theirs", replace=replace)
        assert (job["state"], job["error"]["type"]) == ("failed", "conflict")
    assert asked_of(warehouse, "select count(*) from synthetic_theirs.person") == [(150,)]
    assert written(one, schema="synthetic_b")["state"] == "succeeded"
    assert "name another, or `replace` them" in written(other, schema="synthetic_b")["error"]["detail"]
    assert written(one, schema="synthetic_b")["state"] == "succeeded"  # as an attempt that comes second
    assert asked_of(warehouse, "select count(*) from synthetic_b.person") == [(2,)]
    assert written(other, schema="synthetic_b", replace=True)["state"] == "succeeded"
    assert asked_of(warehouse, "select count(*) from synthetic_b.person") == [(1,)]
    refused = door.refused(f"/cohorts/{one}/exports", sink=sink("public"))
    assert refused.endswith("allowed: cdm, results, synthetic_*")
