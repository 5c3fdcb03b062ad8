"""Jobs as workers and sweepers see them: claims, heartbeats, and endings fenced by (worker, attempt).

A worker that was stopped, cut off or replaced finds that its claim no longer matches the row, and can change nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, delete, insert, or_, select, update

from ehr.errors import JobCancelledError, LeaseLostError
from model_store.clock import now
from model_store.repositories.base import Repository
from model_store.repositories.counts import CountRepository
from model_store.repositories.discards import RETRY_WINDOW_SECONDS, DiscardRepository
from model_store.repositories.jobs import JobRepository
from model_store.repositories.owners import OwnerRepository
from model_store.tables import CohortPart, Job, JobEvent, Outbox

POISON = {
    "type": "poison",
    "detail": "attempt after attempt ended with the loss of its worker and got no further; the job may need more "
    "memory than there is",
}
OUT_OF_MEMORY = {
    "type": "out-of-memory",
    "detail": "there is not enough memory for this job: attempt after attempt was ended by the system; train with a "
    "smaller training.batch_size, or run workers with more",
}


@dataclass(frozen=True)
class Claim:
    """The right to work on a job, as long as the lease is renewed."""

    job_id: str
    worker: str
    attempt: int
    owner: str
    kind: str
    payload: dict[str, Any]
    checkpoint: dict[str, Any] | None
    is_last_attempt: bool
    priority: int = 0


@dataclass(frozen=True)
class Beat:
    """What a worker learns when it renews its lease."""

    is_cancelled: bool
    ran_seconds: float  # in all attempts so far


@dataclass(frozen=True)
class Expired:
    """What a sweep did to a job whose worker fell silent."""

    job_id: str
    state: str


class LeaseRepository(Repository):
    # --- a worker's side ---

    def claim(self, job_id: str, worker: str, lease_seconds: float) -> Claim | None:
        """Take a job that waits or whose worker is gone; None if there is nothing to take. `worker` must be unique."""
        takeable = or_(
            Job.state == "queued",
            and_(Job.state == "running", Job.lease_until < now(), Job.attempt < Job.max_attempts),
        )
        row = self.session.execute(
            update(Job)
            .where(Job.id == job_id, takeable)
            .values(
                state="running",
                worker=worker,
                attempt=Job.attempt + 1,
                lease_until=now() + lease_seconds,
                started_at=now(),
            )
            .returning(Job.attempt, Job.max_attempts, Job.owner, Job.kind, Job.payload, Job.checkpoint, Job.priority)
        ).one_or_none()
        if row is None:
            return None
        self.session.execute(delete(Outbox).where(Outbox.job_id == job_id))
        JobRepository(self.session).record_state(job_id, "running", attempt=row.attempt)
        CountRepository(self.session).add(row.kind, "started")
        last = row.attempt >= row.max_attempts
        return Claim(job_id, worker, row.attempt, row.owner, row.kind, row.payload, row.checkpoint, last, row.priority)

    def heartbeat(
        self, claim: Claim, lease_seconds: float, progress: dict[str, Any] | None = None, keeps: bool = True
    ) -> Beat:
        """Renew the lease and write the progress; if it `keeps`, as an event, too. LeaseLostError if another attempt
        has taken over."""
        values: dict[str, Any] = {"lease_until": now() + lease_seconds}
        if progress is not None:
            values["progress"] = progress
        state = self._fenced(claim, ("running", "cancelling"), values)
        if progress is not None and keeps:
            self.session.execute(insert(JobEvent).values(job_id=claim.job_id, kind="progress", data=progress))
        ran = self.session.scalars(select(_RAN).where(Job.id == claim.job_id)).one()
        return Beat(state == "cancelling", ran)

    def save_checkpoint(self, claim: Claim, checkpoint: dict[str, Any], more_attempts: int | None = None) -> None:
        """Point the job at a newer checkpoint, whose blobs are already in the store. With `more_attempts` it got
        further than any attempt before: so many may be lost from here."""
        values: dict[str, Any] = {"checkpoint": checkpoint}
        if more_attempts is not None:
            values["max_attempts"] = Job.attempt + more_attempts
        self._fenced(claim, ("running", "cancelling"), values)

    def succeed(
        self,
        claim: Claim,
        result: dict[str, Any],
        keep: list[str] | None = None,
        progress: dict[str, Any] | None = None,
    ) -> None:
        """The happy end. JobCancelledError if someone asked to stop first: exactly one of the two wins.

        `keep` names the folders or blobs of the result; whatever else the job's attempts wrote is discarded. `progress`
        is where it ended, which no heartbeat may have told.
        """
        values = {"state": "succeeded", "result": result, "error": None} | _ENDED
        self._fenced(claim, ("running",), values if progress is None else values | {"progress": progress})
        self._end(claim, "succeeded", keep or [])

    def fail(self, claim: Claim, reason: str, detail: str, retry_seconds: float = RETRY_WINDOW_SECONDS) -> None:
        """The unhappy end. For so long a retry finds the upload, the checkpoint or the finished parts."""
        error = {"type": reason, "detail": detail}
        self._fenced(claim, ("running",), {"state": "failed", "error": error} | _ENDED)
        self._end(claim, "failed", [], retry_seconds, error=error)

    def finish_cancel(self, claim: Claim) -> None:
        """The end that was asked for. Nothing of the job remains, but a cohort keeps its finished parts for a retry."""
        self._fenced(claim, ("cancelling",), {"state": "cancelled"} | _ENDED)
        self._end(claim, "cancelled", [])

    def give_back(self, claim: Claim, task: str, queue: str, wait_seconds: float = 0, *, counts: bool = True) -> None:
        """Queue the job again after a fault that is not its own, such as a database that went away. An attempt that
        does not count, such as one whose worker was told to stop, leaves as many to come as before."""
        values = _WAITS | ({} if counts else {"max_attempts": Job.max_attempts + 1})
        self._fenced(claim, ("running",), values)
        self._charge(claim.job_id, "given_back")
        parts = update(CohortPart).where(CohortPart.job_id == claim.job_id, CohortPart.worker == claim.worker)
        free = {"state": "pending"} | _NOBODYS
        self.session.execute(parts.where(CohortPart.state == "running").values(**free))
        message = {"job_id": claim.job_id, "task": task, "queue": queue, "due_at": now() + wait_seconds}
        self.session.execute(insert(Outbox).values(**message))
        JobRepository(self.session).record_state(claim.job_id, "queued")

    def check(self, claim: Claim) -> None:
        """LeaseLostError if the claim no longer holds; locks the row until the end of the transaction."""
        self._fenced(claim, ("running", "cancelling"), {"attempt": claim.attempt})

    def _fenced(self, claim: Claim, states: tuple[str, ...], values: dict[str, Any]) -> str:
        mine = (Job.id == claim.job_id, Job.worker == claim.worker, Job.attempt == claim.attempt)
        state: str | None = self.session.scalar(
            update(Job).where(*mine, Job.state.in_(states)).values(**values).returning(Job.state)
        )
        if state is not None:
            return state
        if self.session.scalar(select(Job.state).where(*mine)) == "cancelling":
            raise JobCancelledError("the job was asked to stop")
        raise LeaseLostError("another attempt has taken over this job")

    def _end(
        self, claim: Claim, state: str, keep: list[str], retry_seconds: float = RETRY_WINDOW_SECONDS, **more: Any
    ) -> None:
        jobs = JobRepository(self.session)
        self._charge(claim.job_id, state)
        jobs.record_state(claim.job_id, state, **more)
        DiscardRepository(self.session).add_for_job(jobs.reload(claim.job_id), keep, retry_seconds)

    def _charge(self, job_id: str, what: str) -> None:
        """Count the time since the job was claimed as its owner's, and what became of the attempt."""
        job = JobRepository(self.session).reload(job_id)
        seconds = self.session.scalars(select(now() - Job.started_at).where(Job.id == job_id)).one() or 0.0
        OwnerRepository(self.session).charge(job.owner, seconds)
        CountRepository(self.session).add(job.kind, what, seconds)

    # --- a sweeper's side ---

    def expire(
        self, task_of: dict[str, tuple[str, str]], limit: int = 100, retry_seconds: float = RETRY_WINDOW_SECONDS
    ) -> list[Expired]:
        """Deal with jobs whose lease has run out: queued again, failed as poison, or cancelled as was asked.

        `task_of` gives the (task, queue) of each kind of job.
        """
        late = select(Job.id).where(Job.state.in_(("running", "cancelling")), Job.lease_until < now()).limit(limit)
        found = [self._expire_one(job_id, task_of, retry_seconds) for job_id in self.session.scalars(late).all()]
        return [expired for expired in found if expired is not None]

    def out_of_memory(self, workers: Sequence[str]) -> list[str]:
        """The system has ended the processes of these workers because memory was used up. Their jobs are tried again
        without waiting for the lease, and those that may not be have failed of it; all of them."""
        dead = (Job.state == "running", Job.worker.in_(workers))
        late = update(Job).where(*dead).values(lease_until=now() - 1).returning(Job.id)
        found = list(self.session.scalars(late.execution_options(synchronize_session=False)))
        values = {"state": "failed", "error": OUT_OF_MEMORY} | _ENDED
        for job_id in found:
            if self._changed(*dead, Job.id == job_id, Job.attempt >= Job.max_attempts, values=values):
                jobs = JobRepository(self.session)
                jobs.record_state(job_id, "failed", error=OUT_OF_MEMORY)
                self._charge(job_id, "failed")
                DiscardRepository(self.session).add_for_job(jobs.reload(job_id))
        return found

    def release_all(self) -> None:
        """End every lease now. Only for a start at which no worker can be alive: the embedded runtime's."""
        query = update(Job).where(Job.state.in_(("running", "cancelling")))
        self.session.execute(query.values(lease_until=now() - 1))

    def _expire_one(self, job_id: str, task_of: dict[str, tuple[str, str]], retry_seconds: float) -> Expired | None:
        late = (Job.id == job_id, Job.lease_until < now())
        failed = {"state": "failed", "error": POISON} | _ENDED
        jobs = JobRepository(self.session)
        if self._changed(*late, Job.state == "cancelling", values={"state": "cancelled"} | _ENDED):
            jobs.record_state(job_id, "cancelled")
        elif self._changed(*late, Job.state == "running", Job.attempt >= Job.max_attempts, values=failed):
            jobs.record_state(job_id, "failed", error=POISON)
        elif not self._changed(*late, Job.state == "running", values=_WAITS):
            return None  # its worker came back, or another sweeper was faster
        job = jobs.reload(job_id)
        self._charge(job_id, "poison" if job.state == "failed" else "lease_lost")
        if job.state == "queued":
            task, queue = task_of[job.kind]
            self.session.execute(insert(Outbox).values(job_id=job_id, task=task, queue=queue))
            jobs.record_state(job_id, "queued")
        else:
            DiscardRepository(self.session).add_for_job(job, retry_seconds=retry_seconds)
        return Expired(job_id, job.state)

    def _changed(self, *conditions: Any, values: dict[str, Any]) -> bool:
        query = update(Job).where(*conditions).values(**values).returning(Job.id)
        return self.session.scalar(query.execution_options(synchronize_session=False)) is not None


_RAN = Job.ran_seconds + now() - Job.started_at  # up to this moment, in all attempts
_NOBODYS: dict[str, Any] = {"worker": None, "lease_until": None}
_WAITS: dict[str, Any] = {"state": "queued", "ran_seconds": _RAN} | _NOBODYS
_ENDED: dict[str, Any] = {"finished_at": now(), "ran_seconds": _RAN} | _NOBODYS
