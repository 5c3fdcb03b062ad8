"""Cancelling: before, during and at the very end."""

import time
from contextlib import suppress

import pytest

from ehr.errors import ConflictError
from tests.service.fixtures import ON_POSTGRES, ON_SQLITE
from tests.service.servers import wait_until
from tests.service.stand import BRIEF_LEASE, Stand, long_csv


@ON_POSTGRES
def test_cancelled_while_queued_never_runs(stand: Stand) -> None:
    job_id = stand.ingest(long_csv())
    assert stand.cancel(job_id).state == "cancelled"
    assert stand.cancel(job_id).state == "cancelled"  # asking twice is asking once
    stand.worker()
    stand.succeed(stand.ingest(long_csv()))  # the old message came first
    assert stand.job(job_id).attempt == 0
    assert stand.states(job_id) == ["queued", "cancelling", "cancelled"]
    wait_until(lambda: stand.blobs("uploads") == [], "removal of the upload")


def test_cancelled_training_stops_within_10_seconds_and_leaves_nothing(postgres_stand: Stand) -> None:
    stand = postgres_stand
    dataset_id = stand.succeed(stand.ingest(long_csv()))["dataset_id"]
    job_id = stand.train(dataset_id, epochs=10_000)
    wait_until(lambda: stand.job(job_id).checkpoint is not None, "a checkpoint")
    start = time.monotonic()
    assert stand.cancel(job_id).state == "cancelling"
    assert stand.wait(job_id, 10).state == "cancelled"
    assert time.monotonic() - start < 10
    wait_until(lambda: stand.blobs(f"checkpoints/{job_id}") == [], "removal of checkpoints")
    assert stand.blobs(f"models/{stand.job(job_id).payload['model_id']}") == []
    done = stand.ingest(long_csv())
    stand.succeed(done)
    with pytest.raises(ConflictError):
        stand.cancel(done)


def test_work_that_does_not_listen_is_ended_by_force(sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    job_id = stand.ingest(long_csv(), "deaf:600")
    stand.wait(job_id, state="running")
    stand.cancel(job_id)
    assert stand.wait(job_id, 10).state == "cancelled"
    stand.succeed(stand.ingest(long_csv()))  # the worker goes on with a new child
    wait_until(lambda: stand.uploads_of(job_id) == [], "removal of the upload")


@ON_SQLITE
def test_cancelled_after_its_worker_died(stand: Stand) -> None:
    worker = stand.worker(**BRIEF_LEASE)
    job_id = stand.ingest(long_csv(), "slow:600")
    stand.wait(job_id, state="running")
    worker.kill()
    assert stand.cancel(job_id).state == "cancelling"
    wait_until(lambda: stand.sweeper.sweep() or stand.job(job_id).state == "cancelled", "the end")
    assert stand.blobs("datasets") == []


def test_cancel_racing_completion_has_one_end(shared_stand: Stand) -> None:
    stand = shared_stand
    ends = []
    for i in range(8):
        job_id = stand.ingest(long_csv(40), f"slow:{0.5 if i else 0}", min_records=1)
        wait_until(lambda job=job_id: stand.job(job).state != "queued", "a start")  # which may be over when it is seen
        if i == 0:
            stand.wait(job_id)
        time.sleep(0.1 * i)
        with suppress(ConflictError):
            stand.cancel(job_id)
        state = stand.wait(job_id).state
        events = stand.states(job_id)
        assert sum(event in ("succeeded", "failed", "cancelled") for event in events) == 1
        dataset = stand.job(job_id).payload["dataset_id"]
        wait_until(lambda d=dataset, s=state: bool(stand.blobs(f"datasets/{d}")) == (s == "succeeded"), "tidy store")
        ends.append(state)
    assert ends[0] == "succeeded"
