"""Patients over time go in, synthetic ones come out: through HTTP, with a real worker."""

import io
import zipfile
from pathlib import Path
from typing import Any

import duckdb
import jsonschema
import pytest

from ehr.formats import writer_named
from ehr.report_schema import report_schema
from ehr_d3pm import ApiError, Client
from tests.api.front import Front
from tests.formats.test_history_cohorts import drawn, stored
from tests.service.stand import Stand

TINY = {
    "denoiser": {"width": 16, "blocks": 1},
    "state": 16,
    "timesteps": 50,
    "steps": 4,
    "training": {"epochs": 1, "holdout_draws": 1},
}
DIABETES = {"ever": ["e11.9"]}
ORDER = {"before": [{"first": "e11.9", "then": "ICD10CM:N183"}]}
# as docs/formats.md has it
E11_BEFORE_N18 = """
    select count(distinct a.person_id)
    from condition_occurrence a join condition_occurrence b on a.person_id = b.person_id
    where a.condition_source_value like 'E11%' and b.condition_source_value like 'N18%'
    and a.condition_start_date < b.condition_start_date
"""


def in_duckdb(data: bytes, folder: Path) -> duckdb.DuckDBPyConnection:
    """Every table of a CDM."""
    connection = duckdb.connect()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if name.endswith(".csv"):
                archive.extract(name, folder)
                connection.execute(f"create table {name[:-4]} as from read_csv('{folder / name}', header = true)")
    return connection


def test_an_omop_upload_comes_out_as_one(sqlite_stand: Stand, tmp_path: Path) -> None:
    real = b"".join(writer_named("omop.zip").write(stored(tmp_path / "real", [drawn(320, seed=4)])))
    (tmp_path / "real.omop.zip").write_bytes(real)
    with Front(sqlite_stand.settings) as front, Client(front.url, front.key("integrator")) as client:
        upload = client.upload([tmp_path / "real.omop.zip"], unit="history", holdout_share=0.25, test_share=0.25)
        dataset = client.wait(upload)["result"]["dataset_id"]
        summary = client.dataset(dataset)["summary"]
        assert (summary["format"]["name"], summary["format"]["unit"], summary["patients"]) == ("omop", "history", 320)
        assert set(summary["history_rules"]) >= {"visits_without_date", "visits_out_of_order", "visits_after_death"}
        with pytest.raises(ApiError, match="these learn: visits, markov"):
            client.train(dataset, generator="independent")
        model = client.wait(client.train(dataset, settings=TINY))["result"]["model_id"]
        audited(client.model(model))
        with Client(front.url, front.key("integrator", "generate", "read")) as analyst:
            asked(client, analyst, model)
            generated(client, analyst, model, tmp_path)


def audited(model: dict[str, Any]) -> None:
    """It was attacked, timed, and has drawn patients once."""
    audit, reference = model["details"]["audit"], model["details"]["reference"]
    assert {attack["name"] for attack in audit["attacks"]} == {"oracle", "mask_loss", "density_ratio"}
    assert sum(attack["absent"] is None for attack in audit["attacks"]) >= 4
    assert audit["verdict"]["level"] != "fail"
    assert reference["records"] >= 1024 and reference["verdict"]["level"] != "fail"
    assert set(model["details"]["costs"]["methods"]) == {"unconditional", "exact"}


def asked(client: Client, analyst: Client, model: str) -> None:
    with pytest.raises(ApiError, match="`history` says"):
        client.generate(model, 20, all_of=["ICD10CM:E119"])
    with pytest.raises(ApiError, match="unknown code 'E999'"):
        client.generate(model, 20, history={"ever": ["E999"]})
    told = analyst.estimate(model, 60, history=DIABETES)
    assert told["support"]["matching"] > 0 and told["withheld"] is None
    assert told["seconds"] > 0 and told["memory_gib"] > 0
    shown = analyst.probe(model, 3, history=DIABETES)["patients"]
    assert len(shown) == 3 and all("ICD10CM:E119" in str(patient["visits"]) for patient in shown)
    # of 160 training patients fewer than 50 would be so
    told = analyst.estimate(model, 60, history=ORDER)
    assert told["support"]["matching"] > 0 and "fewer than 50 patients" in told["withheld"]
    assert told["relaxation"]["history"] == {}
    with pytest.raises(ApiError, match="fewer than 50 patients"):
        analyst.probe(model, 3, history=ORDER)


def generated(client: Client, analyst: Client, model: str, folder: Path) -> None:
    women = {"SEX:F": 0.25}
    job = client.wait(client.generate(model, 60, history=ORDER, targets=women, origin="1990-02-01", seed=3))
    client.wait(job["result"]["evaluate_job_id"])
    report = client.report(job["id"])
    jsonschema.validate(report, report_schema(), cls=jsonschema.Draft202012Validator)
    assert report["history"]["condition"]["before"] == [{"first": "ICD10CM:E119", "then": "ICD10CM:N183"}]
    assert report["conditional"]["metrics"]["attainment"]["figures"]["value"]["value"] == 1
    # there are fewer than 200 such real patients: said, and nobody else is put in their place
    assert (
        "satisfy the condition" in report["time"]["absent"] and "satisfy the condition" in report["fidelity"]["absent"]
    )
    assert report["plausible"]["metrics"]["groups_broken"]["figures"]["value"]["value"] == 0
    assert report["targets"] == [{"codes": ["SEX:F"], "asked": 0.25, "attained": 0.25}]
    assert len(report["pictures"]["courses"]["timelines"]) == 6 and report["pictures"]["courses"]["gaps"] == []
    for look in (
        lambda: analyst.download(job["id"], folder / "cohort.zip", "omop.zip"),
        lambda: analyst.report(job["id"]),
    ):
        with pytest.raises(ApiError, match="withheld"):
            look()
    client.release(job["id"], "nobody is behind it")
    for_everyone = analyst.report(job["id"])
    assert for_everyone["reader"] == "shareable" and for_everyone["synthetic"]["courses"]["timelines"]
    assert for_everyone["synthetic"]["metrics"]["attainment"]["figures"]["value"]["value"] == 1
    assert for_everyone["synthetic"]["metrics"]["groups_broken"]["figures"]["value"]["value"] == 0
    assert "real" not in for_everyone["synthetic"]["courses"]["gaps"][0]
    assert "Synthetic patients" in analyst.report_page(job["id"])
    with pytest.raises(ApiError, match="cannot tell visits over time"):
        client.download(job["id"], folder / "cohort.npz", "npz")
    analyst.download(job["id"], folder / "cohort.zip", "omop.zip")
    assert "1990-02-01" in client.cohort(job["id"])["manifest"]["dates"]
    connection = in_duckdb((folder / "cohort.zip").read_bytes(), folder / "cdm")
    assert connection.execute(E11_BEFORE_N18).fetchall() == [(60,)]
    assert connection.execute("select count(*) from person").fetchall() == [(60,)]
    women = "select count(*) from person where gender_concept_id = 8532"
    assert connection.execute(women).fetchall() == [(15,)]
    first = "select min(visit_start_date)::varchar from visit_occurrence group by person_id"
    assert set(connection.execute(first).fetchall()) == {("1990-02-01",)}
    orphans = """select count(*) from condition_occurrence c left join visit_occurrence v
        on c.visit_occurrence_id = v.visit_occurrence_id and c.person_id = v.person_id
        and c.condition_start_date = v.visit_start_date where v.visit_occurrence_id is null"""
    assert connection.execute(orphans).fetchall() == [(0,)]
