"""Disks without room, clocks that are wrong, memory that runs out, archives that burst: named, and nothing is left."""

import io
import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from model_store.blobs import S3Store
from model_store.ids import MODEL, new_id
from model_store.repositories import JobRepository
from tests.service.fixtures import ON_ONE_MACHINE
from tests.service.servers import wait_until
from tests.service.stand import BRIEF_LEASE, OWNER, TINY, Stand, Worker, long_csv
from worker.contract import ROUTES, TrainPayload
from worker.failures import reason_and_detail

HOUR = 3600


@pytest.fixture
def troubled(sqlite_stand: Stand) -> Iterator[Stand]:
    """A stand that is in order again afterwards."""
    yield sqlite_stand
    sqlite_stand.misbehave()


def failed(stand: Stand, job_id: str, reason: str) -> None:
    job = stand.wait(job_id)
    assert job.state == "failed" and job.error is not None and job.error["type"] == reason, job.error


def retried(stand: Stand, job_id: str) -> None:
    with stand.database.session_scope() as session:
        kind = stand.job(job_id).kind
        JobRepository(session).retry(OWNER, job_id, *ROUTES[kind], more_attempts=3)
    stand.succeed(job_id)


@ON_ONE_MACHINE
def test_a_full_disk_at_every_kind_of_write_of_a_worker(troubled: Stand) -> None:
    """Each fails by name, leaves nothing of what it could not finish, and succeeds when there is room again."""
    stand = troubled
    stand.misbehave(full="/datasets/")
    ingest = stand.ingest(long_csv(), may_be_attacked=False)
    failed(stand, ingest, "store-full")
    stand.misbehave()
    retried(stand, ingest)
    dataset_id = (stand.job(ingest).result or {})["dataset_id"]

    for kind in ("checkpoints", "models"):
        stand.misbehave(full=f"/{kind}/")
        training = stand.train(dataset_id, epochs=3)
        failed(stand, training, "store-full")
        model_id = stand.job(training).payload["model_id"]
        wait_until(lambda m=model_id: stand.blobs(f"models/{m}") == [], "an empty folder")
        stand.misbehave()
        retried(stand, training)

    for place in ("/parts/", "/a[0-9]+/"):  # a part, and the manifest when all parts are there
        stand.misbehave(full=f"/cohorts/.*{place}")
        cohort = stand.generate(model_id, 3000, evaluate=False)
        failed(stand, cohort, "store-full")
        done = stand.blobs(f"cohorts/{cohort}")
        assert all("/parts/" in blob for blob in done) and (place != "/parts/" or done == [])
        stand.misbehave()
        retried(stand, cohort)
        assert set(done) <= set(stand.blobs(f"cohorts/{cohort}"))  # finished parts were not made again


def test_a_full_disk_below_uploads_of_another_host(s3_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """They become files of the worker's own while they are read."""
    s3_store.write("uploads/u", b"x" * 100_000)
    full = lambda dir: open("/dev/full", "wb")  # noqa: E731, SIM115, whoever asks for it closes it
    monkeypatch.setattr("model_store.blobs.s3.tempfile.TemporaryFile", full)
    with pytest.raises(OSError, match="No space") as caught, s3_store.local_path("uploads/u"):
        pass
    assert reason_and_detail(caught.value)[0] == "store-full"


def test_memory_that_runs_out_in_training_is_named(troubled: Stand) -> None:
    stand = troubled
    dataset_id = stand.succeed(stand.ingest(long_csv()))["dataset_id"]
    large = TINY | {"denoiser": {"kind": "sparse", "width": 2048, "blocks": 12}}
    payload = TrainPayload(model_id=new_id(MODEL), name="memory:64", dataset_id=dataset_id, settings=large)
    job_id = stand.submit("train", payload)
    failed(stand, job_id, "out-of-memory")
    assert "batch_size" in (stand.job(job_id).error or {})["detail"]
    stand.succeed(stand.ingest(long_csv()))  # the worker goes on


def child_of(worker: Worker) -> int:
    """The process that runs its jobs."""
    children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children").read_text().split()
    return next(int(pid) for pid in children if "worker.sweep" not in Path(f"/proc/{pid}/cmdline").read_text())


def most_held(pid: int) -> int:
    """MiB since it was last forgotten."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) >> 10


def test_an_archive_that_bursts_is_refused_with_bounded_memory(troubled: Stand) -> None:
    stand, block = troubled, b"record_id,vocabulary,code\n" + b"1,ICD10CM,E11\n" * 70_000
    sink = io.BytesIO()
    archive = zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open("a.csv", "w") as file:
        for _ in range(stand.settings.max_inflated_bytes // len(block) + 100):
            file.write(block)
    pid = child_of(stand.workers[0])
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # what it held before does not count
    before = most_held(pid)
    job_id = stand.ingest(sink.getvalue())
    failed(stand, job_id, "too-large")
    assert pid == child_of(stand.workers[0]) and most_held(pid) - before < 200


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_hosts_clock_is_set_an_hour_forth_and_back(stand: Stand) -> None:
    """Leases are the database's, waits are monotonic: no job is lost to it, and none is kept an hour longer."""
    first = stand.worker(**BRIEF_LEASE)
    job_id = stand.ingest(long_csv(), "slow:3")
    stand.wait(job_id, state="running")
    for hours in (1, -1):
        stand.misbehave(clock=str(hours * HOUR))
        left = stand.job(job_id).lease_until
        wait_until(lambda seen=left: stand.job(job_id).lease_until != seen, "a beat")
    stand.succeed(job_id)
    assert stand.job(job_id).attempt == 1
    ended = next(line for line in first.log.read_text().splitlines() if '"job succeeded"' in line)
    late = datetime.now(UTC) - datetime.fromisoformat(json.loads(ended)["time"])
    assert late > timedelta(minutes=50)  # its clock really was an hour behind
    orphan = stand.ingest(long_csv(), "deaf:600")
    stand.wait(orphan, state="running")
    first.kill()  # an hour behind
    stand.misbehave(clock=str(HOUR))
    stand.worker(**BRIEF_LEASE)
    stand.succeed(orphan)
    assert stand.job(orphan).attempt == 2
