"""A cohort is the same whoever makes it, is there as it grows, and what was made of it is never lost."""

import hashlib
import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ehr.conditions import AskedCondition, AskedTarget
from ehr.generators import CHUNK
from ehr_d3pm import Client
from model_store.repositories import CohortRepository, JobRepository
from tests.api.front import Front
from tests.service.servers import wait_until
from tests.service.stand import BRIEF_LEASE, OWNER, Stand, long_csv
from worker.contract import ROUTES, GeneratePayload
from worker.runtime import Runtime
from worker.tasks.generate import Tally

FORMATS = ("long.csv", "ndjson", "parquet")
PARTS = 40  # enough that a job can be ended among them


def trained(stand: Stand) -> str:
    dataset_id = stand.succeed(stand.ingest(long_csv()))["dataset_id"]
    model_id: str = stand.succeed(stand.train(dataset_id, epochs=1))["model_id"]
    return model_id


def files(stand: Stand, folder: Path, job_id: str) -> dict[str, str]:
    """The sha256 of what a user would download."""
    found = {}
    with Front(stand.settings) as front, Client(front.url, front.key(OWNER)) as client:
        for name in FORMATS:
            client.download(job_id, folder / "cohort", name)
            found[name] = hashlib.sha256((folder / "cohort").read_bytes()).hexdigest()
    return found


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_the_same_files_whatever_the_workers_and_the_size_of_parts(stand: Stand, tmp_path: Path) -> None:
    first = stand.worker(PART_RECORDS="100")
    model_id = trained(stand)
    request: dict[str, Any] = {
        "n": 9 * CHUNK + 17,
        "conditions": AskedCondition(any_of=[["ICD9DX:001", "ICD9DX:002"]]),
        "targets": [AskedTarget(codes=["ICD9DX:010", "ICD9DX:011"], share=0.3)],
        "evaluate": False,
    }
    alone = stand.generate(model_id, seed=5, **request)
    stand.succeed(alone)
    first.kill()
    for _ in range(2):
        stand.worker(PART_RECORDS="5000")
    together, other = (stand.generate(model_id, seed=seed, **request) for seed in (5, 6))
    stand.succeed(together)
    stand.succeed(other)
    with stand.database.read_scope() as session:
        n_parts = [len(CohortRepository(session).parts(job_id)) for job_id in (alone, together)]
    assert n_parts == [10, 3]
    expected = files(stand, tmp_path, alone)
    assert files(stand, tmp_path, together) == expected
    assert all(files(stand, tmp_path, other)[name] != expected[name] for name in FORMATS)


@pytest.mark.parametrize(
    ("database_url", "end"), [("sqlite", "cancelled"), ("postgres", "queued")], indirect=["database_url"]
)
def test_what_ended_early_keeps_its_parts_and_the_rest_is_made_later(stand: Stand, tmp_path: Path, end: str) -> None:
    worker = stand.worker(**BRIEF_LEASE)
    model_id = trained(stand)
    request: dict[str, Any] = {"n": PARTS * CHUNK, "seed": 1, "steps": 50, "evaluate": False}
    payload = GeneratePayload(model_id=model_id, **request)
    job_id = stand.submit("generate", payload, max_attempts=1)
    with Front(stand.settings) as front, Client(front.url, front.key(OWNER)) as client:
        wait_until(lambda: client.parts(job_id)["parts"], "a finished part")
        running = client.parts(job_id)
        assert running["state"] == "running" and 0 < running["finished_records"] < request["n"]
        part = running["parts"][0]
        client.download_part(job_id, part["number"], tmp_path / "part")
        data = (tmp_path / "part").read_bytes()
        assert hashlib.sha256(data).hexdigest() == part["sha256"]
        records = pq.read_table(io.BytesIO(data))["record_id"].to_numpy()
        assert part["first_record"] <= records.min() <= records.max() < part["first_record"] + part["n_records"]
        if end == "cancelled":
            client.cancel(job_id)
        else:
            worker.kill()  # in its only attempt, which does not count: parts were made
        wait_until(lambda: stand.sweeper.sweep() or client.job(job_id)["state"] == end, "the end")
        kept = {part["number"]: part["sha256"] for part in client.parts(job_id)["parts"]}
        blobs = set(stand.blobs(f"cohorts/{job_id}"))
        assert 0 < len(kept) < PARTS
        if end == "queued":
            stand.worker()
        client.wait(client.retry(job_id) if end == "cancelled" else client.job(job_id))
        after = {part["number"]: part["sha256"] for part in client.parts(job_id)["parts"]}
        assert kept.items() <= after.items() and len(after) == PARTS
        wait_until(lambda: len(stand.blobs(f"cohorts/{job_id}")) == PARTS + 1, "a tidy folder")
        assert len(blobs & set(stand.blobs(f"cohorts/{job_id}"))) == len(kept)  # not made a second time


def test_parts_of_an_ended_job_can_be_deleted(stand: Stand) -> None:
    with stand.database.session_scope() as session:
        payload = GeneratePayload(model_id="mdl_" + "0" * 32, n=2 * CHUNK).stored()
        job_id = JobRepository(session).submit(OWNER, "generate", *ROUTES["generate"], payload, 1).id
        CohortRepository(session).ensure_parts(job_id, 2 * CHUNK, CHUNK)
    blob = f"cohorts/{job_id}/parts/p0.parquet"
    stand.store.write(blob, b"part")
    stand.cancel(job_id)
    stand.sweeper.sweep()
    assert stand.blobs(f"cohorts/{job_id}") == [blob]  # kept for a retry
    with stand.database.session_scope() as session:
        CohortRepository(session).delete(OWNER, job_id)
    stand.sweeper.sweep()
    assert stand.blobs(f"cohorts/{job_id}") == []


def test_progress_counts_the_records_of_all_workers(stand: Stand) -> None:
    with stand.database.session_scope() as session:
        payload = GeneratePayload(model_id="mdl_" + "0" * 32, n=4 * CHUNK).stored()
        job_id = JobRepository(session).submit(OWNER, "generate", *ROUTES["generate"], payload, 1).id
        cohorts = CohortRepository(session)
        cohorts.ensure_parts(job_id, 4 * CHUNK, CHUNK)
    tally = Tally(Runtime(stand.settings, stand.database, stand.store, stand.broker), job_id)
    assert tally.records(100) == 100
    with stand.database.session_scope() as session:
        session.execute(_finished(job_id, 2))
    assert tally.records() == CHUNK  # someone else's part
    assert tally.records(100) == CHUNK + 100


def _finished(job_id: str, number: int) -> Any:
    from sqlalchemy import update

    from model_store.tables import CohortPart

    return update(CohortPart).where(CohortPart.job_id == job_id, CohortPart.number == number).values(state="done")
