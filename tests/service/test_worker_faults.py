"""Workers that die, freeze, or meet a full disk: one result, no trace of the rest."""

import signal
import time
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from ehr.errors import ConflictError, NotFoundError
from model_store.bundles import load_bundle
from model_store.files import unpack_arrays
from model_store.repositories import DatasetRepository, JobRepository, ModelRepository
from tests.api.front import Front
from tests.service.fixtures import ON_POSTGRES, ON_SQLITE, new_stand
from tests.service.servers import PATIENCE_SECONDS, Postgres, wait_until
from tests.service.stand import BRIEF_LEASE, OWNER, Stand, long_csv
from worker.contract import ROUTES


@ON_POSTGRES
def test_kill_9_in_mid_training_resumes_from_the_checkpoint(stand: Stand) -> None:
    worker = stand.worker(**BRIEF_LEASE)
    dataset_id = stand.succeed(stand.ingest(long_csv(600), may_be_attacked=False))["dataset_id"]
    uninterrupted = stand.succeed(stand.train(dataset_id, epochs=30))["model_id"]
    job_id = stand.train(dataset_id, epochs=30)
    wait_until(lambda: (stand.job(job_id).checkpoint or {}).get("step", 0) > 40, "a checkpoint")
    worker.kill()
    step = (stand.job(job_id).checkpoint or {})["step"]
    assert stand.job(job_id).state == "running"
    stand.worker()
    model_id = stand.succeed(job_id)["model_id"]
    job = stand.job(job_id)
    assert job.attempt == 2
    assert job.checkpoint is not None and job.checkpoint["step"] > step
    assert stand.states(job_id) == ["queued", "running", "queued", "running", "succeeded"]
    # one bundle, and it is the one an uninterrupted training gives
    wait_until(lambda: stand.blobs("checkpoints") == [], "removal of checkpoints")
    assert len({blob.split("/")[2] for blob in stand.blobs(f"models/{model_id}")}) == 1
    with stand.database.read_scope() as session:
        rows = [ModelRepository(session).get(OWNER, each) for each in (model_id, uninterrupted)]
    resumed, whole = (unpack_arrays(load_bundle(stand.store, row.prefix, row.manifest_hash).weights) for row in rows)
    assert all(np.array_equal(resumed[name], whole[name]) for name in whole)


@ON_POSTGRES
def test_a_frozen_worker_that_comes_back_writes_nothing(stand: Stand) -> None:
    frozen = stand.worker(**BRIEF_LEASE)
    job_id = stand.ingest(long_csv(), "zombie:1")
    stand.wait(job_id, state="running")
    frozen.signal_tree(signal.SIGSTOP)
    stand.worker()
    stand.succeed(job_id)
    before = (stand.job(job_id), stand.states(job_id), stand.blobs("datasets"))
    frozen.signal_tree(signal.SIGCONT)
    wait_until(lambda: "taken over" in frozen.log.read_text(), "the old attempt's end")
    time.sleep(0.5)
    after = (stand.job(job_id), stand.states(job_id), stand.blobs("datasets"))
    assert before[0].attempt == after[0].attempt == 2
    assert before[0].result == after[0].result
    assert before[1:] == after[1:]
    assert before[1] == ["queued", "running", "queued", "running", "succeeded"]


@ON_SQLITE
def test_a_job_that_kills_its_worker_fails_as_poison_and_others_proceed(stand: Stand) -> None:
    stand.worker(LEASE_SECONDS="2")  # its attempts end at once: only the wait for the end of their leases takes time
    poison = stand.ingest(long_csv(), "poison")
    stand.wait(poison, state="running")
    good = stand.ingest(long_csv())
    stand.succeed(good)
    job = stand.wait(poison)
    assert job.state == "failed"
    assert job.error is not None and job.error["type"] == "poison"
    assert job.attempt == 3
    stand.succeed(stand.ingest(long_csv()))


def retry(stand: Stand, job_id: str) -> None:
    with stand.database.session_scope() as session:
        again = JobRepository(session).retry(OWNER, job_id, *ROUTES["ingest"], more_attempts=1)
    assert again.state == "queued"


@ON_SQLITE
def test_data_that_cannot_be_used_fails_without_being_quoted_and_is_kept_for_so_long(stand: Stand) -> None:
    job_id = stand.ingest(b"nonsense\n1\n", publish=False)
    stand.worker(RETRY_SECONDS="0")
    job = stand.wait(job_id)
    assert job.error is not None and job.error["type"] == "bad-data"
    assert "nonsense" not in job.error["detail"]
    wait_until(lambda: stand.blobs("uploads") == [], "removal of the upload")
    wait_until(lambda: not stand.discards(), "the end of the removal")
    with pytest.raises(ConflictError, match="upload it again"):
        retry(stand, job_id)


def test_full_disk_fails_the_job_and_leaves_what_a_retry_needs(sqlite_stand: Stand) -> None:
    """A process that may write no larger file gets the same error as one whose disk is full."""
    stand = sqlite_stand
    job_id = stand.ingest(long_csv(400), "full:4000")
    job = stand.wait(job_id)
    dataset_id = job.payload["dataset_id"]
    assert job.state == "failed"
    assert job.error is not None and job.error["type"] == "store-full"
    wait_until(lambda: stand.blobs(f"datasets/{dataset_id}") == [], "an empty folder")
    with stand.database.read_scope() as session, pytest.raises(NotFoundError):
        DatasetRepository(session).get(OWNER, dataset_id)
    retry(stand, job_id)  # there is room again
    stand.succeed(job_id)
    assert stand.job(job_id).attempt == 2
    wait_until(lambda: stand.uploads_of(job_id) == [], "removal of the upload")


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.remove()


def test_a_failover_in_mid_job(own_postgres: Postgres) -> None:
    """The database refuses connections, comes back and takes no writes, and then does: nobody starts anything again."""
    with new_stand(own_postgres.new_database("failover")) as stand, Front(stand.settings) as front:
        worker = stand.worker()
        job_id = stand.ingest(long_csv(), "slow:2")
        stand.wait(job_id, state="running")
        own_postgres.stop()
        assert front.get("/jobs").status_code == front.get("/readyz").status_code == 503
        own_postgres.start(read_only=True)
        wait_until(lambda: front.get("/jobs").status_code == 200, "answers from what can be read")
        upload = {"file": ("a.csv", long_csv(40))}
        answer = httpx.post(f"{front.url}/datasets", files=upload, timeout=PATIENCE_SECONDS)
        assert (answer.status_code, answer.headers.get("retry-after")) == (503, "2"), answer.text
        assert answer.json()["type"].endswith(":database-unavailable")
        heard = worker.log.read_text().count("the lease was not renewed")
        wait_until(lambda: worker.log.read_text().count("the lease was not renewed") > heard, "a beat in vain")
        own_postgres.stop()
        own_postgres.start()
        stand.succeed(job_id)
        assert stand.job(job_id).attempt == 1
        accepted = httpx.post(f"{front.url}/datasets", files=upload, timeout=PATIENCE_SECONDS)
        assert accepted.status_code == 202
        stand.succeed(accepted.json()["id"])
