"""Running one job: claim it, keep the lease, run its task, write the end.

A message that comes twice finds the job claimed. A worker that was replaced learns it from its heartbeat, and could
change nothing even if it did not.
"""

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from ehr.errors import EhrError, JobCancelledError, LeaseLostError, WorkerStoppingError
from model_store.repositories import Claim, LeaseRepository, OutboxRepository
from model_store.tables import Job
from runtime.logs import place_of
from runtime.sweeper import carry_out_discards
from worker.contract import ROUTES
from worker.failures import reason_and_detail
from worker.heartbeat import DATABASE_AWAY, Heartbeat, StopSignal
from worker.progress import JobProgress
from worker.runtime import Runtime
from worker.stopping import stopping

log = logging.getLogger(__name__)
T = TypeVar("T")

DATABASE_PATIENCE_SECONDS = 300


@dataclass
class Outcome:
    """What a task has given: the job's result, the rows to add with it, and the blobs that stay."""

    result: dict[str, Any]
    add_rows: Callable[[Session], None]
    keep: list[str]


@dataclass
class JobRun:
    """A claimed job, as its task sees it."""

    runtime: Runtime
    claim: Claim
    progress: JobProgress
    stop: StopSignal = field(default_factory=StopSignal)
    # folders only this attempt writes to; removed if the attempt is replaced
    own_folders: list[str] = field(default_factory=list)

    def should_stop(self) -> bool:
        """For loops that can stop by themselves."""
        return self.stop.is_up()

    def check(self) -> None:
        """Raise if the work is no longer wanted."""
        self.stop.check()


def new_worker_name() -> str:
    """Unique to one claim: the fence must tell two claims of one process apart."""
    return f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(8)}"


def patiently(scope: Callable[[], AbstractContextManager[Session]], work: Callable[[Session], T]) -> T:
    """Do a unit of work in a session of `scope`; while the database is away, wait and try again."""
    deadline = time.monotonic() + DATABASE_PATIENCE_SECONDS
    while True:
        try:
            with scope() as session:
                return work(session)
        except DATABASE_AWAY:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def execute(runtime: Runtime, job_id: str, task: Callable[[JobRun], Outcome]) -> None:
    """Claim a job and carry it to an end. Does nothing if there is nothing to claim."""
    if stopping.is_set():  # the message was on its way when the worker was told to stop
        patiently(runtime.database.session_scope, lambda session: OutboxRepository(session).hurry(job_id))
        return
    lease_seconds = runtime.settings.lease_seconds
    claim = patiently(
        runtime.database.session_scope,
        lambda session: LeaseRepository(session).claim(job_id, new_worker_name(), lease_seconds),
    )
    if claim is None:
        log.info("nothing to claim", extra={"job_id": job_id})
        return
    log.info("job starts", extra={"job_id": job_id, "kind": claim.kind, "attempt": claim.attempt})
    run = JobRun(runtime, claim, JobProgress(claim.kind))
    with Heartbeat(runtime.settings, run.stop, lambda: _beat(run), lambda: _end_by_force(run)):
        _run_to_end(run, task)
    _tidy(run)


def _beat(run: JobRun) -> bool:
    with run.runtime.database.session_scope() as session:
        leases = LeaseRepository(session)
        return leases.heartbeat(run.claim, run.runtime.settings.lease_seconds, run.progress.news())


def _end_by_force(run: JobRun) -> None:
    if run.stop.is_lost:
        _give_way(run)
    elif run.stop.cancelled.is_set():
        finish_cancel(run)  # a sweeper removes the files once this process can no longer write any
    else:
        _hand_over(run)


def _run_to_end(run: JobRun, task: Callable[[JobRun], Outcome]) -> None:
    try:
        outcome = task(run)
        patiently(run.runtime.database.session_scope, lambda session: _succeed(session, run, outcome))
        log.info("job succeeded", extra={"job_id": run.claim.job_id})
    except JobCancelledError:
        finish_cancel(run)
    except WorkerStoppingError:
        _hand_over(run)
    except LeaseLostError:
        _give_way(run)
    except Exception as error:
        _fail(run, error)


def _succeed(session: Session, run: JobRun, outcome: Outcome) -> None:
    LeaseRepository(session).succeed(run.claim, outcome.result, outcome.keep)  # first: it fences everything below
    outcome.add_rows(session)


def finish_cancel(run: JobRun) -> None:
    """Write the end that was asked for."""
    try:
        patiently(run.runtime.database.session_scope, lambda session: LeaseRepository(session).finish_cancel(run.claim))
        log.info("job cancelled", extra={"job_id": run.claim.job_id})
    except LeaseLostError:
        _give_way(run)


def _fail(run: JobRun, error: Exception) -> None:
    """Write the unhappy end; a database that went away is not the job's fault, and the job is tried again."""
    reason, detail = reason_and_detail(error)
    again = isinstance(error, DATABASE_AWAY) and not run.claim.is_last_attempt
    log.error(
        "job failed",
        extra={"job_id": run.claim.job_id, "reason": reason, "type": type(error).__name__, "at": place_of(error)},
    )

    def write(session: Session) -> None:
        leases = LeaseRepository(session)
        if again:
            leases.give_back(run.claim, *ROUTES[run.claim.kind], wait_seconds=run.runtime.settings.sweep_seconds)
        else:
            leases.fail(run.claim, reason, detail, run.runtime.settings.retry_seconds)

    try:
        patiently(run.runtime.database.session_scope, write)
    except JobCancelledError:
        finish_cancel(run)
    except LeaseLostError:
        _give_way(run)


def _hand_over(run: JobRun) -> None:
    """The worker is told to stop: whoever is free goes on with the job, from what this attempt has kept of it."""
    try:
        _give_back_uncounted(run)
        log.info("job handed over", extra={"job_id": run.claim.job_id, "attempt": run.claim.attempt})
    except JobCancelledError:
        finish_cancel(run)
    except LeaseLostError:
        _give_way(run)


def _give_back_uncounted(run: JobRun) -> None:
    """Queue the job again as if this attempt had not been; nothing of it remains but checkpoint and parts."""
    task, queue = ROUTES[run.claim.kind]
    scope = run.runtime.database.session_scope
    patiently(scope, lambda session: LeaseRepository(session).give_back(run.claim, task, queue, counts=False))
    _remove_own(run)


def _give_way(run: JobRun) -> None:
    """The lease has run out: remove what this attempt wrote, unless it was this one that finished, and queue the job
    again if nobody has it.

    This one has finished when the connection broke after the commit and before its confirmation. Nobody has the job
    when the database was away for longer than the lease, which is not the job's fault.
    """
    try:
        _give_back_uncounted(run)
        log.warning("job given back after its lease", extra={"job_id": run.claim.job_id})
        return
    except JobCancelledError:
        finish_cancel(run)
        return
    except LeaseLostError:
        pass
    job = patiently(run.runtime.database.read_scope, lambda session: session.get(Job, run.claim.job_id))
    if job is not None and job.state == "succeeded" and job.attempt == run.claim.attempt:
        return
    log.warning("job was taken over", extra={"job_id": run.claim.job_id, "attempt": run.claim.attempt})
    _remove_own(run)


def _remove_own(run: JobRun) -> None:
    for folder in run.own_folders:
        run.runtime.store.delete_folder(folder)


def _tidy(run: JobRun) -> None:
    """Remove leftovers at once; if that fails, a sweeper does it later."""
    try:
        carry_out_discards(run.runtime.database, run.runtime.store)
    except (EhrError, *DATABASE_AWAY) as error:
        log.warning("leftovers wait for a sweeper", extra={"reason": type(error).__name__})
