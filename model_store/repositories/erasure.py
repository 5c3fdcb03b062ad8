"""Everything that was made from a dataset, and taking all of it away.

What was withheld stays known, and so does how much each key has had of a model: both are about requests, hold no record
of a patient, and would be a way around the gate if they could be deleted.
"""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, func, or_, select, update

from model_store.repositories.audit import AuditRepository
from model_store.repositories.base import Repository
from model_store.repositories.cohorts import CohortRepository
from model_store.repositories.datasets import DatasetRepository
from model_store.repositories.jobs import JobRepository
from model_store.repositories.models import ModelRepository
from model_store.tables import (
    Audit,
    Cohort,
    CohortRequest,
    Discard,
    Exposure,
    Job,
    JobEvent,
    Model,
    ReportRow,
)

UNFINISHED = ("queued", "running", "cancelling")
ACTION = "erase dataset"


@dataclass(frozen=True)
class Dependants:
    """What was made from a dataset, by id, and the jobs that work on it or on that."""

    models: list[str] = field(default_factory=list)
    cohorts: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    unfinished_jobs: list[str] = field(default_factory=list)


class ErasureRepository(Repository):
    def dependants(self, owner: str, dataset_id: str) -> Dependants:
        """NotFoundError if the owner has no such dataset."""
        DatasetRepository(self.session).get(owner, dataset_id)
        models = self._ids(select(Model.id).where(Model.owner == owner, Model.dataset_id == dataset_id))
        drawn = select(Cohort.job_id).where(
            Cohort.owner == owner, or_(Cohort.dataset_id == dataset_id, Cohort.model_id.in_(models))
        )
        cohorts = self._ids(drawn)
        measured = self._jobs(owner, dataset_id, models, cohorts, ("evaluate",))
        about = or_(ReportRow.cohort_job_id.in_(cohorts), ReportRow.job_id.in_(job.id for job in measured))
        reports = self._ids(select(ReportRow.job_id).where(ReportRow.owner == owner, about))
        at_work = self._jobs(owner, dataset_id, models, cohorts, ("train", "generate", "evaluate", "export"))
        return Dependants(models, cohorts, reports, sorted(job.id for job in at_work if job.state in UNFINISHED))

    def erase(self, owner: str, dataset_id: str, key_prefix: str | None) -> dict[str, Any]:
        """Remove a dataset and everything made from it, and stop what works on it; files go when a sweeper comes by.
        The report says what was removed and what remains, and stays in the audit trail."""
        found = self.dependants(owner, dataset_id)
        row = DatasetRepository(self.session).get(owner, dataset_id)
        jobs = JobRepository(self.session)
        for job_id in found.unfinished_jobs:
            jobs.request_cancel(owner, job_id)
        touched = self._jobs(owner, dataset_id, found.models, found.cohorts, ("train", "evaluate"))
        self._forget_reports(found)
        for cohort_id in found.cohorts:
            CohortRepository(self.session).delete(owner, cohort_id)
        for model_id in found.models:
            ModelRepository(self.session).delete(owner, model_id)
        DatasetRepository(self.session).delete(owner, dataset_id)
        self._forget_figures([row.job_id, *(job.id for job in touched)])
        report = {
            "removed": {
                "datasets": [dataset_id],
                "models": found.models,
                "cohorts": found.cohorts,
                "reports": found.reports,
            },
            "cancelled_jobs": found.unfinished_jobs,
            "remains": self._remains(found),
        }
        AuditRepository(self.session).record(owner, ACTION, dataset_id, key_prefix, report)
        return report

    def erased(self, owner: str, dataset_id: str) -> Audit | None:
        """The row of the erasure of a dataset; None if it was not erased."""
        query = select(Audit).where(Audit.owner == owner, Audit.action == ACTION, Audit.target == dataset_id)
        return self.session.scalar(query.limit(1))

    def files_left(self, removed: dict[str, list[str]]) -> int:
        """How many folders of what was removed a sweeper has yet to clear."""
        folders = [f"{kind}/{each}" for kind in ("datasets", "models", "cohorts") for each in removed.get(kind, [])]
        query = select(func.count()).select_from(Discard).where(Discard.prefix.in_(folders))
        return self.session.scalars(query).one()

    def _jobs(
        self, owner: str, dataset_id: str, models: list[str], cohorts: list[str], kinds: tuple[str, ...]
    ) -> list[Job]:
        """Jobs of these kinds that used the dataset or something made from it. Their rows say so in their payloads."""
        query = select(Job).where(Job.owner == owner, Job.kind.in_(kinds))
        names = {"dataset_id": {dataset_id}, "model_id": set(models), "cohort_job_id": set(cohorts)}
        found = self.session.scalars(query.execution_options(yield_per=500))
        return [job for job in found if any(job.payload.get(name) in ids for name, ids in names.items())]

    def _forget_reports(self, found: Dependants) -> None:
        """Why a cohort was withheld moves to the row of its request, which stays."""
        withholding = select(ReportRow).where(ReportRow.job_id.in_(found.reports), ReportRow.withholds.is_not(None))
        for report in self.session.scalars(withholding.order_by(ReportRow.created_at)).all():
            asked = update(CohortRequest).where(CohortRequest.job_id == report.cohort_job_id)
            self.session.execute(asked.where(CohortRequest.withholds.is_(None)).values(withholds=report.withholds))
        self.session.execute(delete(ReportRow).where(ReportRow.job_id.in_(found.reports)))

    def _forget_figures(self, job_ids: list[str]) -> None:
        """Results and progress of jobs that read real records: counts, losses."""
        self.session.execute(update(Job).where(Job.id.in_(job_ids)).values(result=None, progress=None))
        events = delete(JobEvent).where(JobEvent.job_id.in_(job_ids), JobEvent.kind == "progress")
        self.session.execute(events)

    def _remains(self, found: Dependants) -> list[dict[str, Any]]:
        """What stays, how much of it there is, and why."""
        asked = select(func.count()).select_from(CohortRequest).where(CohortRequest.model_id.in_(found.models))
        exposed = select(func.count()).select_from(Exposure).where(Exposure.model_id.in_(found.models))
        return [
            {
                "what": "requests for cohorts, with what was withheld",
                "rows": self.session.scalars(asked).one(),
                "why": "what was withheld once stays known; they hold no record of anyone",
            },
            {
                "what": "how much each key has had of the models",
                "rows": self.session.scalars(exposed).one(),
                "why": "what was learned is not unlearned; counts and hashes of requests only",
            },
            {"what": "the audit trail", "why": "it says who did what, this erasure included"},
            {"what": "rows of jobs, without results", "why": "until RETAIN_JOBS_DAYS have passed"},
            {
                "what": "what was downloaded or written elsewhere, and backups",
                "why": "they are not the service's to remove",
            },
        ]

    def _ids(self, query: Any) -> list[str]:
        return sorted(self.session.scalars(query))
