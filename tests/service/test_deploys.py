"""Deploys: a worker that is told to stop loses nothing, and what got further is tried for as long as it does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from model_store.repositories import LeaseRepository
from tests.service.fixtures import ON_POSTGRES, ON_SQLITE
from tests.service.servers import PATIENCE_SECONDS, wait_until
from tests.service.stand import Stand, Worker, long_csv

LONG_LEASE = {"LEASE_SECONDS": "600"}  # nothing here may wait for a lease to run out


def stopped(worker: Worker, seconds: float = 60) -> int:
    """SIGTERM to the worker alone, as a container's runtime sends it; its exit code."""
    worker.process.terminate()
    return worker.process.wait(seconds)


def health_check(temporary: Path) -> int:
    """The exit code that a container's runtime gets."""
    command = [sys.executable, "-m", "worker.health"]
    return subprocess.run(command, env={**os.environ, "TMPDIR": str(temporary)}, timeout=PATIENCE_SECONDS).returncode


def attempts_left(stand: Stand, job_id: str) -> int:
    job = stand.job(job_id)
    return job.max_attempts - job.attempt


@ON_POSTGRES
def test_deploys_do_not_lose_a_training(stand: Stand) -> None:
    """Two of them, although it may be attempted once only."""
    environment = LONG_LEASE | {"CHECKPOINT_SECONDS": "3600"}  # no checkpoints but those that a stop makes
    worker = stand.worker(**environment)
    dataset_id = stand.succeed(stand.ingest(long_csv(600), may_be_attacked=False))["dataset_id"]
    job_id, seen = stand.train(dataset_id, epochs=40, max_attempts=1), 0
    for _ in range(2):
        wait_until(lambda s=seen: _step(stand, job_id) > s + 10, "progress")
        next_worker = stand.worker(**environment)  # a rolling deploy: the new one is there before the old one goes
        assert stopped(worker) == 0
        checkpoint = stand.job(job_id).checkpoint
        assert checkpoint is not None and checkpoint["step"] > seen
        seen, worker = checkpoint["step"], next_worker
    stand.succeed(job_id)
    assert stand.states(job_id) == ["queued", *["running", "queued"] * 2, "running", "succeeded"]


def _step(stand: Stand, job_id: str) -> int:
    """How many batches the row says there were."""
    steps = (stand.job(job_id).progress or {}).get("steps", [])
    return next((int(step["value"]) for step in steps if step["name"] == "train"), 0)


@ON_SQLITE
def test_a_stopped_worker_hands_its_job_over_at_once(stand: Stand) -> None:
    own = stand.folder / "tmp"
    own.mkdir()
    first = stand.worker(TMPDIR=str(own), **LONG_LEASE)
    job_id = stand.ingest(long_csv(), "slow:2")
    stand.wait(job_id, state="running")
    assert health_check(own) == 0
    left = attempts_left(stand, job_id) + 1  # this one included
    stand.worker(**LONG_LEASE)
    first.signal_tree(signal.SIGTERM)  # to its children, too, as an init process that forwards signals does
    assert first.process.wait(60) == 0
    assert health_check(own) == 1
    assert stand.job(job_id).state in ("queued", "running")
    stand.succeed(job_id)
    assert stand.states(job_id) == ["queued", "running", "queued", "running", "succeeded"]
    assert attempts_left(stand, job_id) + 1 == left
    wait_until(lambda: stand.blobs("uploads") == [], "removal of the upload")


@ON_SQLITE
def test_work_that_does_not_listen_is_given_back_by_force(stand: Stand) -> None:
    worker = stand.worker(STOP_SECONDS="0.5", **LONG_LEASE)
    job_id = stand.ingest(long_csv(), "deaf:60")
    stand.wait(job_id, state="running")
    worker.process.terminate()
    worker.process.wait(60)
    job = stand.job(job_id)
    assert (job.state, job.worker) == ("queued", None)
    assert attempts_left(stand, job_id) == 3


@ON_SQLITE
def test_what_gets_further_each_time_is_no_poison(stand: Stand) -> None:
    """Five times kill -9, and each time a later checkpoint. A job that gets nowhere: see test_worker_faults."""
    stand.worker(LEASE_SECONDS="1", HEARTBEAT_SECONDS="0.2")
    job_id = stand.ingest(long_csv(), "advance:5")
    stand.succeed(job_id)
    assert stand.job(job_id).attempt == 6


def test_an_attempt_counts_unless_a_later_checkpoint_or_part_came_of_it(stand: Stand) -> None:
    job_id = stand.ingest(long_csv(), publish=False)
    for attempt, advances in enumerate([False, True, False, False], start=1):
        with stand.database.session_scope() as session:
            claim = LeaseRepository(session).claim(job_id, f"w{attempt}", lease_seconds=-1)
            assert claim is not None and claim.attempt == attempt
            if advances:
                LeaseRepository(session).save_checkpoint(claim, {"step": attempt}, more_attempts=2)
    assert attempts_left(stand, job_id) == 0
    time.sleep(0.01)
    stand.sweeper.expire_leases()
    error = stand.job(job_id).error
    assert error is not None and error["type"] == "poison"
