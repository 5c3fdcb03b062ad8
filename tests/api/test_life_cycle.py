"""Deleting with everything that depends on it, keeping for as long as the settings say, and leftovers."""

import os
import time
from importlib.metadata import entry_points
from typing import Any

import pytest
from sqlalchemy import func, select, update
from typer.testing import CliRunner

from app.commands.storage import scrub as scrub_command
from ehr.audits import ModelAudit
from model_store import layout
from model_store.clock import now
from model_store.ids import DATASET, MODEL, UPLOAD, new_id
from model_store.repositories import (
    CohortRepository,
    IdempotencyRepository,
    JobRepository,
    LeaseRepository,
    RetentionRepository,
)
from model_store.scrub import scrub
from model_store.tables import Cohort, CohortRequest, Exposure, IdempotencyKeyRow, Job, JobEvent, ReportRow
from runtime.sweeper import Sweeper
from tests.api.front import GOOD, Caller
from tests.api.test_problems import assert_problem
from tests.service.fixtures import ON_ONE_MACHINE
from tests.service.servers import wait_until
from worker.contract import ROUTES

YEAR = 365 * 86_400.0  # nothing of other tests is so old
NEVER = {"retain_events_days": 0.0, "retain_jobs_days": 0.0, "retain_cohorts_days": 0.0}
FAILED = GOOD.model_copy(update={"level": "fail", "reason": "Copies."})


def blobs(caller: Caller, folder: str) -> list[str]:
    return sorted(caller.front.services.store.list(folder))


@pytest.fixture
def made(caller: Caller) -> dict[str, str]:
    """A dataset with a model, a cohort with a report that withholds it, a training that runs and one that waits."""
    dataset = caller.dataset()
    model = caller.model(dataset_id=dataset)
    cohort = caller.made({"model_id": model, "n": 1})
    report = caller.report({}, cohort=cohort, privacy="fail", withholds="Copies.")
    training = caller.job("train", dataset_id=dataset, model_id=new_id(MODEL))
    waiting = caller.job("generate", model_id=model, n=5)
    with caller.front.services.database.session_scope() as session:
        assert LeaseRepository(session).claim(training, "w", 60) is not None
    return {
        "dataset": dataset,
        "model": model,
        "cohort": cohort,
        "report": report,
        "training": training,
        "waiting": waiting,
    }


def test_erasure_removes_all_that_was_made_and_what_was_withheld_stays_known(
    caller: Caller, stranger: Caller, made: dict[str, str]
) -> None:
    dataset, model, cohort, training = made["dataset"], made["model"], made["cohort"], made["training"]
    found = caller.http.get(f"/datasets/{dataset}/dependants").json()
    assert found["models"] == [model] and found["cohorts"] == [cohort]
    assert sorted(found["reports"]) == sorted([cohort, made["report"]])
    assert sorted(found["unfinished_jobs"]) == sorted([training, made["waiting"]])
    assert_problem(stranger.http.get(f"/datasets/{dataset}/dependants"), 404, "not-found")
    assert_problem(stranger.http.delete(f"/datasets/{dataset}?cascade=true"), 404, "not-found")
    analyst = caller.front.as_owner(caller.owner, "generate", "read")
    assert_problem(analyst.http.get(f"/datasets/{dataset}/dependants"), 403, "forbidden")

    report = caller.http.delete(f"/datasets/{dataset}?cascade=true")
    assert report.status_code == 200
    told = report.json()
    assert told["removed"] == {k: found[k] for k in ("models", "cohorts", "reports")} | {"datasets": [dataset]}
    assert sorted(told["cancelled_jobs"]) == sorted(found["unfinished_jobs"])
    assert [each["rows"] for each in told["remains"] if each["rows"] is not None] == [1, 1]
    for path in (f"/datasets/{dataset}", f"/models/{model}", f"/cohorts/{cohort}", f"/reports/{cohort}"):
        assert caller.http.get(path).status_code == 404
    states = {job: caller.http.get(f"/jobs/{job}").json()["state"] for job in (training, made["waiting"])}
    assert states == {training: "cancelling", made["waiting"]: "cancelled"}
    caller.front.services.sweeper.discard()
    folders = (f"datasets/{dataset}", f"models/{model}", f"cohorts/{cohort}")
    # the service's own sweeper may have some of them in hand
    wait_until(lambda: not any(blobs(caller, folder) for folder in folders), "the end of all files")
    erasure = f"/datasets/{dataset}/erasure"
    wait_until(lambda: caller.http.get(erasure).json()["folders_left"] == 0, "the end of all folders")
    again = caller.http.get(erasure).json()
    assert again["removed"] == told["removed"] and again["erased_at"]
    assert_problem(caller.http.get(f"/datasets/{new_id(DATASET)}/erasure"), 404, "not-found")
    with caller.front.services.database.read_scope() as session:
        assert session.get_one(CohortRequest, cohort).withholds == "Copies."
        assert session.scalar(select(Exposure.records).where(Exposure.model_id == model)) == 1
        assert session.scalar(select(func.count()).where(ReportRow.owner == caller.owner)) == 0


def test_without_cascade_models_stay(caller: Caller) -> None:
    dataset = caller.dataset()
    model = caller.model(dataset_id=dataset, audit=ModelAudit(verdict=FAILED, rare_conditions=GOOD, figures={}))
    assert caller.http.delete(f"/datasets/{dataset}").status_code == 204
    assert caller.http.get(f"/models/{model}").status_code == 200
    assert_problem(caller.http.get(f"/datasets/{dataset}/erasure"), 404, "not-found")


def test_what_is_old_goes_unless_something_rests_on_it(caller: Caller) -> None:
    ended, young = caller.job("train", model_id=new_id(MODEL)), caller.job("train", model_id=new_id(MODEL))
    cohort = caller.cohort([[[0]]])
    waits = caller.job("train", model_id=new_id(MODEL))
    database = caller.front.services.database
    with database.session_scope() as session:
        for job_id in (ended, young):
            JobRepository(session).request_cancel(caller.owner, job_id)
        old: dict[str, Any] = {"finished_at": 1000.0}
        session.execute(update(Job).where(Job.id == ended).values(old))
        session.execute(update(Job).where(Job.id == cohort).values(old | {"state": "succeeded"}))
    with database.session_scope() as session:
        while RetentionRepository(session).forget_events(YEAR):
            pass
        kept = session.scalars(select(JobEvent.job_id).where(JobEvent.job_id.in_([ended, young, waits]))).all()
        assert set(kept) == {young, waits}
        while RetentionRepository(session).forget_jobs(YEAR):
            pass
        left = session.scalars(select(Job.id).where(Job.id.in_([ended, young, cohort, waits]))).all()
        assert set(left) == {young, cohort, waits}
        assert session.get(ReportRow, cohort) is not None
    with database.session_scope() as session:
        CohortRepository(session).get(caller.owner, cohort).created_at = 1000.0
    with database.session_scope() as session:
        RetentionRepository(session).forget_cohorts(YEAR)
    assert caller.http.get(f"/cohorts/{cohort}").status_code == 404
    with database.read_scope() as session:
        assert session.get(Job, young) is not None


def test_sweepers_keep_things_for_as_long_as_the_settings_say(caller: Caller) -> None:
    """Events, jobs, cohorts and Idempotency-Keys; 0 keeps the first three for ever."""
    services = caller.front.services
    ended, cohort = caller.job("train", model_id=new_id(MODEL)), caller.cohort([[[0]]])
    with services.database.session_scope() as session:
        JobRepository(session).request_cancel(caller.owner, ended)
        IdempotencyRepository(session).reserve(caller.owner, "POST /train", "old", "hash", ended)
    with services.database.session_scope() as session:
        old = now() - 30 * 86_400  # too young for the service's own sweeper
        session.execute(update(Job).where(Job.id == ended).values(finished_at=old))
        session.execute(update(IdempotencyKeyRow).where(IdempotencyKeyRow.job_id == ended).values(created_at=old))
        session.execute(update(Cohort).where(Cohort.job_id == cohort).values(created_at=old))

    def left(**days: float) -> tuple[bool, ...]:
        settings = caller.front.settings.model_copy(update=NEVER | days)
        for _ in range(20):  # other tests have left things that are as old, and each time some go
            Sweeper(services.database, services.broker, services.store, ROUTES, settings).retain()
        with services.database.read_scope() as session:
            events = session.scalar(select(func.count()).where(JobEvent.job_id == ended))
            key = IdempotencyRepository(session).find(caller.owner, "POST /train", "old", "hash")
            rows = (session.get(Job, ended), session.get(Cohort, cohort))
            return (bool(events), *(row is not None for row in rows), key is not None)

    assert left() == (True, True, True, False)
    assert left(retain_events_days=20) == (False, True, True, False)
    assert left(retain_jobs_days=20) == (False, False, True, False)
    assert left(retain_cohorts_days=20) == (False, False, False, False)


def test_scrub_finds_leftovers_and_losses_and_nothing_that_is_in_the_making(caller: Caller) -> None:
    services = caller.front.services
    store, database = services.store, services.database
    dataset, cohort = caller.dataset(), caller.cohort([[[0], [1]]])
    lost = caller.dataset()
    orphan = f"{layout.model_folder(new_id(MODEL), 1)}/weights.safetensors"
    training, model = new_id(UPLOAD), new_id(MODEL)
    upload = layout.upload_blob(training)
    store.write(orphan, b"x")
    store.write(upload, b"x")
    caller.job("ingest", dataset_id=new_id(DATASET), files=[{"upload_id": training, "size": 1}])
    with database.session_scope() as session:
        JobRepository(session).submit(caller.owner, "train", *ROUTES["train"], {"model_id": model}, 3)
    store.write(f"{layout.model_folder(model, 1)}/weights.safetensors", b"being written")
    lost_blob = next(key for key in blobs(caller, f"datasets/{lost}") if not key.endswith("manifest.json"))
    store.delete(lost_blob)

    def mine(found: Any) -> tuple[list[str], list[tuple[str, str]]]:
        return [e.key for e in found.leftovers], [(each.thing, each.key) for each in found.lost]

    assert orphan not in mine(scrub(database, store, remove=True))[0]  # it is young
    leftovers, losses = mine(scrub(database, store, older_than_seconds=-60, verify=True))
    assert orphan in leftovers and (lost, lost_blob) in losses
    kept = (upload, f"{layout.model_folder(model, 1)}/weights.safetensors", *blobs(caller, f"cohorts/{cohort}"))
    assert not set(leftovers) & {*kept, *blobs(caller, f"datasets/{dataset}")}
    assert dataset not in {thing for thing, _ in losses}
    part = next(key for key in blobs(caller, f"cohorts/{cohort}") if key.endswith(".parquet"))
    store.delete(part)
    store.write(part, b"other bytes")
    assert (cohort, part) not in mine(scrub(database, store))[1]
    assert (cohort, part) in mine(scrub(database, store, verify=True))[1]
    assert store.exists(orphan)


@ON_ONE_MACHINE  # only a file can be made to look old
def test_the_scrub_command(sqlite_caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    settings = sqlite_caller.front.settings
    monkeypatch.setenv("DATABASE_URL", settings.database_url)
    monkeypatch.setenv("DATA_DIR", str(settings.data_dir))
    sqlite_caller.dataset()
    store = sqlite_caller.front.services.store
    old = f"checkpoints/{new_id(UPLOAD)}/a1-5/tensors.safetensors"
    store.write(old, b"x")
    with store.local_path(old) as path:
        os.utime(path, (time.time() - 90_000,) * 2)
    (entry,) = entry_points(group="ehr_d3pm.commands", name="scrub")
    assert entry.load() is scrub_command  # `ehr-d3pm scrub`
    cli = typer.Typer()
    cli.command()(scrub_command)
    looked = CliRunner().invoke(cli, ["--dry-run", "--verify"])
    assert looked.exit_code == 0 and f"leftover: {old} (1 bytes)" in looked.output and store.exists(old)
    done = CliRunner().invoke(cli, [])
    assert f"removed: {old}" in done.output and not store.exists(old)
