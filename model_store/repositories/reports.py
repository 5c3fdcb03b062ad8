"""Reports: what evaluate jobs have given."""

from sqlalchemy import or_, select

from ehr.errors import NotFoundError
from model_store.ids import JOB, checked_id
from model_store.repositories.base import OwnedRepository
from model_store.tables import ReportRow


class ReportRepository(OwnedRepository[ReportRow]):
    table, id_column, id_kind = ReportRow, "job_id", JOB

    def newest(self, owner: str, job_id: str) -> ReportRow:
        """The report of the evaluate job with this id; or on the cohort of the generate job, the newest that judges its
        privacy, so that a report on other data hides nothing, or else the newest."""
        checked_id(job_id, JOB)
        mine = (ReportRow.owner == owner, or_(ReportRow.job_id == job_id, ReportRow.cohort_job_id == job_id))
        order = (ReportRow.privacy.is_(None), ReportRow.created_at.desc())
        report = self.session.scalar(select(ReportRow).where(*mine).order_by(*order).limit(1))
        if report is None:
            raise NotFoundError("there is no report for this job")
        return report
