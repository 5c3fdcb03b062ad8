"""Cohorts and their parts. Any number of workers take parts; each part has a lease and a fence of its own."""

from dataclasses import dataclass

from sqlalchemy import and_, delete, func, insert, or_, select, update

from ehr.errors import LeaseLostError, NotFoundError
from model_store.clock import now
from model_store.ids import JOB, checked_id
from model_store.layout import cohort_folder
from model_store.repositories.base import OwnedRepository
from model_store.repositories.discards import DiscardRepository
from model_store.tables import Cohort, CohortPart, Job


@dataclass(frozen=True)
class PartClaim:
    """The right to make one part of a cohort."""

    job_id: str
    number: int
    first_record: int
    n_records: int
    worker: str


class CohortRepository(OwnedRepository[Cohort]):
    """A cohort's id is that of its generate job."""

    table, id_column, id_kind = Cohort, "job_id", JOB

    def delete(self, owner: str, job_id: str) -> None:
        """Remove it, or the parts of one that failed or was cancelled; files go when a sweeper comes by."""
        job = self._job(owner, job_id)
        if job is None or job.state not in ("failed", "cancelled"):
            self.session.delete(self.get(owner, job_id))
        self.session.execute(delete(CohortPart).where(CohortPart.job_id == job_id))
        discards = DiscardRepository(self.session)
        discards.forget(cohort_folder(job_id))
        discards.add(cohort_folder(job_id))

    def _job(self, owner: str, job_id: str) -> Job | None:
        job = self.session.get(Job, checked_id(job_id, JOB))
        return job if job is not None and (job.owner, job.kind) == (owner, "generate") else None

    # --- parts ---

    def ensure_parts(self, job_id: str, n_records: int, part_records: int) -> None:
        """Make the part rows of a job, once; later attempts find them as they are."""
        if self.session.scalar(select(CohortPart.number).where(CohortPart.job_id == job_id).limit(1)) is not None:
            return
        rows = [
            {"job_id": job_id, "number": i, "first_record": first, "n_records": min(part_records, n_records - first)}
            for i, first in enumerate(range(0, n_records, part_records))
        ]
        if rows:
            self.session.execute(insert(CohortPart), rows)

    def parts(self, job_id: str) -> list[CohortPart]:
        """All parts in order."""
        query = select(CohortPart).where(CohortPart.job_id == job_id).order_by(CohortPart.number)
        return list(self.session.scalars(query))

    def finished_parts(self, owner: str, job_id: str) -> tuple[Job, list[CohortPart]]:
        """The owner's generate job and the parts it has so far, in order; NotFoundError if there is no such cohort."""
        job = self._job(owner, job_id)
        if job is None:
            raise NotFoundError("there is no cohort with this id")
        if job.state == "succeeded":
            self.get(owner, job_id)  # it may have been deleted since
        return job, [part for part in self.parts(job_id) if part.state == "done"]

    def done_records(self, job_id: str) -> int:
        """How many records the finished parts hold."""
        query = select(func.coalesce(func.sum(CohortPart.n_records), 0))
        return int(self.session.scalars(query.where(CohortPart.job_id == job_id, CohortPart.state == "done")).one())

    def claim_part(self, job_id: str, worker: str, lease_seconds: float) -> PartClaim | None:
        """Take the first part nobody works on, while the job runs; None if there is none."""
        free = or_(CohortPart.state == "pending", and_(CohortPart.state == "running", CohortPart.lease_until < now()))
        runs = select(Job.id).where(Job.id == job_id, Job.state == "running").exists()
        first = (
            select(CohortPart.number)
            .where(CohortPart.job_id == job_id, free)
            .order_by(CohortPart.number)
            .limit(1)
            .with_for_update(skip_locked=True)
            .scalar_subquery()
        )
        row = self.session.execute(
            update(CohortPart)
            .where(CohortPart.job_id == job_id, CohortPart.number == first, free, runs)
            .values(state="running", worker=worker, lease_until=now() + lease_seconds)
            .returning(CohortPart.number, CohortPart.first_record, CohortPart.n_records)
        ).one_or_none()
        return None if row is None else PartClaim(job_id, row.number, row.first_record, row.n_records, worker)

    def renew_part(self, claim: PartClaim, lease_seconds: float) -> bool:
        """Keep the part; True if the job no longer runs. LeaseLostError if the part was taken over."""
        self._fenced(claim, {"lease_until": now() + lease_seconds})
        return self.session.scalar(select(Job.state).where(Job.id == claim.job_id)) != "running"

    def finish_part(self, claim: PartClaim, blob: str, sha256: str, size: int, more_attempts: int) -> None:
        """The part is in the store under `blob`: the job got further, and so many attempts may be lost from here."""
        self._fenced(claim, {"state": "done", "blob": blob, "sha256": sha256, "bytes": size, "lease_until": None})
        most = Job.attempt + more_attempts
        self.session.execute(
            update(Job).where(Job.id == claim.job_id, Job.max_attempts < most).values(max_attempts=most)
        )

    def free_part(self, claim: PartClaim) -> None:
        """Let others make the part."""
        self._fenced(claim, {"state": "pending", "worker": None, "lease_until": None})

    def forget_part(self, job_id: str, number: int) -> None:
        """A finished part's blob is gone: it must be made again."""
        self.session.execute(
            update(CohortPart)
            .where(CohortPart.job_id == job_id, CohortPart.number == number)
            .values(state="pending", worker=None, lease_until=None, blob=None, sha256=None, bytes=None)
        )

    def _fenced(self, claim: PartClaim, values: dict[str, object]) -> None:
        number = self.session.scalar(
            update(CohortPart)
            .where(
                CohortPart.job_id == claim.job_id,
                CohortPart.number == claim.number,
                CohortPart.worker == claim.worker,
                CohortPart.state == "running",
            )
            .values(**values)
            .returning(CohortPart.number)
        )
        if number is None:
            raise LeaseLostError("this part of the cohort was taken over or given up")
