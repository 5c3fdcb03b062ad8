"""Jobs as their owners see them: submit, look, cancel, try again."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, delete, func, insert, or_, select, update

from ehr.errors import ConflictError
from model_store.clock import now
from model_store.ids import JOB, new_id
from model_store.layout import can_be_retried
from model_store.repositories.base import OwnedRepository
from model_store.repositories.discards import DiscardRepository
from model_store.repositories.webhooks import DeliveryRepository
from model_store.tables import Job, JobEvent, Outbox

TERMINAL_STATES = ("succeeded", "failed", "cancelled")
# Events of progress that stay when a job has ended, beside those with which its steps began: of a training its curve,
# of others where they were.
KEPT_PROGRESS, KEPT_OF_OTHERS = {"train": 32}, 1


class JobRepository(OwnedRepository[Job]):
    table, id_column, id_kind = Job, "id", JOB

    def submit(
        self,
        owner: str,
        kind: str,
        task: str,
        queue: str,
        payload: Mapping[str, Any],
        max_attempts: int,
        job_id: str | None = None,
        priority: int = 0,
    ) -> Job:
        """A queued job and its outbox row. After the commit, wake a sweeper: it sends the message."""
        values = {"owner": owner, "kind": kind, "payload": dict(payload), "max_attempts": max_attempts}
        values["priority"] = priority
        job = Job(id=job_id or new_id(JOB), **values)
        self.add(job)
        self.session.execute(insert(Outbox).values(job_id=job.id, task=task, queue=queue))
        self.record_state(job.id, "queued")
        self.session.refresh(job)  # created_at is the database's
        return job

    def events(self, owner: str, job_id: str, after: int = 0, limit: int = 500) -> list[JobEvent]:
        """What happened after event `after`, oldest first. A finished job's last event is its terminal state."""
        self.get(owner, job_id)
        query = select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.id > after)
        return list(self.session.scalars(query.order_by(JobEvent.id).limit(limit)))

    def log(self, owner: str, job_id: str, most: int) -> list[JobEvent]:
        """The newest of the changes of state and the beginnings of steps, oldest first."""
        self.get(owner, job_id)
        begun = self._beginnings(job_id)
        wanted = select(JobEvent.id).where(
            JobEvent.job_id == job_id, or_(JobEvent.kind == "state", JobEvent.id.in_(begun))
        )
        newest = select(JobEvent).where(JobEvent.id.in_(wanted)).order_by(JobEvent.id.desc()).limit(most)
        return list(reversed(self.session.scalars(newest).all()))

    def progress(self, owner: str, job_id: str, most: int) -> list[JobEvent]:
        """At most so many events of progress, evenly from the first to the last: a job of a day has ten thousands."""
        self.get(owner, job_id)
        told = select(JobEvent.id).where(JobEvent.job_id == job_id, JobEvent.kind == "progress")
        ids = _thinned(self.session.scalars(told.order_by(JobEvent.id)).all(), most)
        return list(self.session.scalars(select(JobEvent).where(JobEvent.id.in_(ids)).order_by(JobEvent.id)))

    def request_cancel(self, owner: str, job_id: str) -> Job:
        """Ask a job to stop. Queued: cancelled at once and never runs. Running: its worker sees it within seconds.

        Asking twice is the same as asking once; asking a job that succeeded or failed is a ConflictError.
        """
        self.get(owner, job_id)
        # The conditions are checked by the updates themselves: a worker may claim or finish it at this moment.
        if self._changed(job_id, ["queued"], state="cancelled", finished_at=now()):
            self.session.execute(delete(Outbox).where(Outbox.job_id == job_id))
            self.record_state(job_id, "cancelling")
            self.record_state(job_id, "cancelled")
            job = self.reload(job_id)
            DiscardRepository(self.session).add_for_job(job)
            return job
        if self._changed(job_id, ["running"], state="cancelling"):
            self.record_state(job_id, "cancelling")
        job = self.reload(job_id)
        if job.state in ("succeeded", "failed"):
            raise ConflictError(f"the job has already {job.state}")
        return job

    def retry(self, owner: str, job_id: str, task: str, queue: str, more_attempts: int) -> Job:
        """Queue a job again that failed, or a cohort that was cancelled; a cohort keeps its finished parts. Other
        states are a ConflictError."""
        job = self.get(owner, job_id)
        ends = [state for state in TERMINAL_STATES if can_be_retried(job.kind, state)]
        values = {"error": None, "finished_at": None, "max_attempts": Job.attempt + more_attempts}
        if not self._changed(job_id, ends, state="queued", **values):
            raise ConflictError(f"only a job that {' or was '.join(ends)} can be tried again; this one is {job.state}")
        DiscardRepository(self.session).forget_job(job)
        self.session.execute(insert(Outbox).values(job_id=job_id, task=task, queue=queue))
        self.record_state(job_id, "queued")
        return self.reload(job_id)

    def record_state(self, job_id: str, state: str, **more: Any) -> None:
        """Write a state event. The job's row was changed before in this transaction, so its events are in order."""
        self.session.execute(insert(JobEvent).values(job_id=job_id, kind="state", data={"state": state, **more}))
        if state in TERMINAL_STATES:
            DeliveryRepository(self.session).add_end_of_job(job_id, state)
            self._thin_progress(job_id)

    def _thin_progress(self, job_id: str) -> None:
        """Keep so many events of progress, evenly, and those of the log: nobody follows the job any more."""
        kind = self.session.scalars(select(Job.kind).where(Job.id == job_id)).one()
        query = select(JobEvent.id).where(JobEvent.job_id == job_id, JobEvent.kind == "progress")
        ids = self.session.scalars(query.order_by(JobEvent.id)).all()
        kept = {
            *_thinned(ids, KEPT_PROGRESS.get(kind, KEPT_OF_OTHERS)),
            *self.session.scalars(self._beginnings(job_id)),
        }
        gone = [event for event in ids if event not in kept]
        if gone:
            self.session.execute(delete(JobEvent).where(JobEvent.id.in_(gone)))

    def _beginnings(self, job_id: str) -> Select[tuple[int]]:
        """The events with which steps began, attempt after attempt: after a change of state a step begins again."""
        step = JobEvent.data["step"].as_string()
        told = select(JobEvent.id, step.label("step")).where(JobEvent.job_id == job_id).subquery()
        before = func.lag(told.c.step).over(order_by=told.c.id)
        marked = select(told.c.id, told.c.step, before.label("before")).subquery()
        begins = marked.c.step.is_not(None) & marked.c.before.is_distinct_from(marked.c.step)
        return select(marked.c.id).where(begins)

    def _changed(self, job_id: str, states: list[str], **values: Any) -> bool:
        """Whether the job was in one of the states and has the values now."""
        query = update(Job).where(Job.id == job_id, Job.state.in_(states)).values(**values)
        return self.session.scalar(query.returning(Job.id)) is not None

    def reload(self, job_id: str) -> Job:
        """The row as it is after updates in this transaction."""
        return self.session.scalars(select(Job).where(Job.id == job_id).execution_options(populate_existing=True)).one()


def _thinned(ids: Sequence[int], most: int) -> Sequence[int]:
    """At most so many of them, with the first and the last; of one alone, the last."""
    if len(ids) <= most:
        return ids
    if most == 1:
        return ids[-1:]
    return [ids[place * (len(ids) - 1) // (most - 1)] for place in range(most)]
