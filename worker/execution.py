"""Running one job: claim it, keep the lease, run its task, write the end.

A message that comes twice finds the job claimed. A worker that was replaced learns it from its heartbeat, and could
change nothing even if it did not.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from ehr.errors import (
    ComeBackError,
    EhrError,
    JobCancelledError,
    LeaseLostError,
    TimeLimitError,
    TurnOverError,
    WorkerStoppingError,
)
from model_store.repositories import Claim, LeaseRepository, OutboxRepository, TurnRepository
from model_store.tables import Job
from runtime.logs import job_id as job_id_of_logs
from runtime.logs import place_of
from runtime.sweeper import carry_out_discards
from runtime.traces import CONSUMER, HEADER, Context, Steps
from worker.claims import claim_named, claim_next
from worker.contract import ROUTES
from worker.failures import reason_and_detail
from worker.heartbeat import DATABASE_AWAY, OVERTIME, Heartbeat, StopSignal
from worker.patience import patiently
from worker.progress import JobProgress
from worker.runtime import Runtime
from worker.stopping import stopping

log = logging.getLogger(__name__)
WAIT_SECONDS = 3.0  # a free worker would have taken a job by then: whoever still waits waits for a running one
FAILED = "failed"
LOADS_A_TURN = 5  # of all time at most a sixth goes into loading what was unloaded for somebody else


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
    begun_at: float = field(default_factory=time.monotonic)
    turn_ends_at: float = math.inf
    ran_seconds: float = 0.0  # in all attempts, when the lease was last renewed

    def begin_turn(self) -> None:
        """The work begins, and can be interrupted and gone on with: for TURN_SECONDS it is nobody else's turn, or
        longer if it took long to come so far."""
        now = time.monotonic()
        self.turn_ends_at = now + max(self.runtime.settings.turn_seconds, LOADS_A_TURN * (now - self.begun_at))

    def should_stop(self) -> bool:
        """For loops that can stop by themselves."""
        return self.stop.is_up()

    def check(self) -> None:
        """Raise if the work is no longer wanted."""
        self.stop.check()


Task = Callable[[JobRun], Outcome]


def execute(runtime: Runtime, job_id: str, task_of: Callable[[str], Task]) -> bool:
    """A message has come that names a job: claim the one that is next, and carry it to an end. `task_of` gives the task
    of each kind. False if there is nothing to claim."""
    if stopping.is_set():  # the message was on its way when the worker was told to stop
        patiently(runtime.database.session_scope, lambda session: OutboxRepository(session).hurry(job_id))
        return False
    claim = patiently(runtime.database.session_scope, lambda session: claim_named(session, runtime.settings, job_id))
    if claim is None:
        log.info("nothing to claim", extra={"job_id": job_id})
        return False
    run_claimed(runtime, claim, task_of)
    return True


def execute_next(runtime: Runtime, task_of: Callable[[str], Task]) -> bool:
    """Carry the job that is next to an end; False if none waits."""
    if stopping.is_set():
        return False
    claim = patiently(runtime.database.session_scope, lambda session: claim_next(session, runtime.settings))
    if claim is not None:
        run_claimed(runtime, claim, task_of)
    return claim is not None


def run_claimed(runtime: Runtime, claim: Claim, task_of: Callable[[str], Task]) -> None:
    """Carry a job to an end. Its task is imported under the heartbeat: that can take longer than a lease."""
    token = job_id_of_logs.set(claim.job_id)
    log.info("job starts", extra={"kind": claim.kind, "attempt": claim.attempt})
    steps = Steps(runtime.tracer)
    run = JobRun(runtime, claim, JobProgress(claim.kind, claim.payload, steps.begin))
    parent = Context.of(claim.payload.get(HEADER))
    try:
        with runtime.tracer.span(f"job {claim.kind}", CONSUMER, parent) as span:
            with Heartbeat(runtime.settings, run.stop, lambda: _beat(run), lambda: _end_by_force(run)):
                outcome = _run_to_end(run, task_of)
            steps.end()
            if span is not None:
                span.set(job_id=claim.job_id, kind=claim.kind, attempt=claim.attempt, outcome=outcome)
                span.failed = outcome == FAILED
        _tidy(run)
    finally:
        job_id_of_logs.reset(token)


def _beat(run: JobRun) -> bool:
    settings = run.runtime.settings
    with run.runtime.database.session_scope() as session:
        news = run.progress.news()
        keeps = news is not None and run.progress.is_an_event(run.ran_seconds)
        beat = LeaseRepository(session).heartbeat(run.claim, settings.lease_seconds, news, keeps)
        if time.monotonic() > run.turn_ends_at and not run.stop.turn_over.is_set():
            turns, most = TurnRepository(session), settings.limit_running_jobs
            if turns.makes_way(run.claim, settings.queues, most, WAIT_SECONDS):
                run.stop.turn_over.set()
    run.ran_seconds = beat.ran_seconds
    if beat.ran_seconds > settings.job_seconds:
        run.stop.overtime.set()
    return beat.is_cancelled


def _end_by_force(run: JobRun) -> None:
    if run.stop.is_lost:
        _give_way(run)
    elif run.stop.cancelled.is_set():
        finish_cancel(run)  # a sweeper removes the files once this process can no longer write any
    elif run.stop.overtime.is_set():
        _fail(run, TimeLimitError(OVERTIME))
    else:
        _hand_over(run)


def _run_to_end(run: JobRun, task_of: Callable[[str], Task]) -> str:
    """What became of the attempt, in a word."""
    try:
        task = task_of(run.claim.kind)
        run.begun_at = time.monotonic()
        outcome = task(run)
        patiently(run.runtime.database.session_scope, lambda session: _succeed(session, run, outcome))
        log.info("job succeeded", extra={"job_id": run.claim.job_id})
        return "succeeded"
    except JobCancelledError:
        finish_cancel(run)
        return "cancelled"
    except (TurnOverError, WorkerStoppingError):
        _hand_over(run)
        return "given_back"
    except ComeBackError as later:
        _hand_over(run, later.wait_seconds)
        return "given_back"
    except LeaseLostError:
        _give_way(run)
        return "lease_lost"
    except Exception as error:
        _fail(run, error)
        return FAILED


def _succeed(session: Session, run: JobRun, outcome: Outcome) -> None:
    # first: it fences everything below
    LeaseRepository(session).succeed(run.claim, outcome.result, outcome.keep, run.progress.now())
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


def _hand_over(run: JobRun, wait_seconds: float = 0) -> None:
    """The worker is told to stop, or has to wait: whoever is free then goes on with the job, from what this attempt has
    kept of it."""
    try:
        _give_back_uncounted(run, wait_seconds)
        log.info("job handed over", extra={"job_id": run.claim.job_id, "attempt": run.claim.attempt})
    except JobCancelledError:
        finish_cancel(run)
    except LeaseLostError:
        _give_way(run)


def _give_back_uncounted(run: JobRun, wait_seconds: float = 0) -> None:
    """Queue the job again as if this attempt had not been; nothing of it remains but checkpoint and parts."""

    def write(session: Session) -> None:
        LeaseRepository(session).give_back(run.claim, *ROUTES[run.claim.kind], wait_seconds, counts=False)

    patiently(run.runtime.database.session_scope, write)
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
    """Let the next one of an owner who has many start, and remove leftovers at once; if that fails, a sweeper does it
    later."""
    most = run.runtime.settings.limit_running_jobs
    try:
        with run.runtime.database.session_scope() as session:
            TurnRepository(session).next_of(run.claim.owner, most)
        carry_out_discards(run.runtime.database, run.runtime.store)
    except (EhrError, *DATABASE_AWAY) as error:
        log.warning("leftovers wait for a sweeper", extra={"reason": type(error).__name__})
