"""Reports: what evaluate jobs have measured beside real records, and cohorts by themselves."""

from sqlalchemy import delete, or_, select

from ehr.errors import NotFoundError
from ehr.shareable import CohortDescription
from model_store.ids import JOB, checked_id
from model_store.repositories.base import OwnedRepository
from model_store.tables import Cohort, Job, ReportRow

CUSTODIAN, SHAREABLE = "custodian", "shareable"


class ReportRepository(OwnedRepository[ReportRow]):
    table, id_column, id_kind = ReportRow, "job_id", JOB

    def newest(self, owner: str, job_id: str) -> ReportRow:
        """The report of the evaluate job with this id; or on the cohort of the generate job, the newest that judges its
        privacy, so that a report on other data hides nothing, or else the newest."""
        checked_id(job_id, JOB)
        mine = (ReportRow.owner == owner, or_(ReportRow.job_id == job_id, ReportRow.cohort_job_id == job_id))
        order = (ReportRow.privacy.is_(None), ReportRow.created_at.desc())
        query = select(ReportRow).where(*mine, ReportRow.reader == CUSTODIAN).order_by(*order)
        report = self.session.scalar(query.limit(1))
        if report is None:
            raise NotFoundError("there is no report for this job")
        return report

    def last_seconds(self, owner: str, model_id: str) -> float | None:
        """What the newest evaluation of a cohort of the model took; None if there is none."""
        query = (
            select(Job.finished_at - Job.started_at)
            .join(ReportRow, ReportRow.job_id == Job.id)
            .join(Cohort, Cohort.job_id == ReportRow.cohort_job_id)
            .where(Cohort.owner == owner, Cohort.model_id == model_id, ReportRow.reader == CUSTODIAN)
        )
        return self.session.scalar(query.order_by(Job.finished_at.desc()).limit(1))

    def add_description(self, owner: str, cohort_id: str, description: CohortDescription) -> None:
        """What a cohort is by itself. Its job may have been tried more than once: the last words count."""
        self.session.execute(delete(ReportRow).where(ReportRow.job_id == cohort_id))
        told = {"version": description.version, "body": description.model_dump(mode="json")}
        self.add(ReportRow(job_id=cohort_id, cohort_job_id=cohort_id, owner=owner, reader=SHAREABLE, **told))

    def description(self, owner: str, job_id: str) -> CohortDescription:
        """Of the cohort of the generate job, or of the one that the evaluate job has measured."""
        checked_id(job_id, JOB)
        measured = select(ReportRow.cohort_job_id).where(ReportRow.owner == owner, ReportRow.job_id == job_id)
        cohort_id = self.session.scalar(measured) or job_id
        own = (ReportRow.owner == owner, ReportRow.job_id == cohort_id, ReportRow.reader == SHAREABLE)
        body = self.session.scalar(select(ReportRow.body).where(*own))
        if body is None:
            raise NotFoundError("there is no description of this cohort")
        return CohortDescription.model_validate(body)
