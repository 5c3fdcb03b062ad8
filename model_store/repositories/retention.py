"""Removing what nobody needs any more, a little at a time. Ages are counted by the database's clock."""

from sqlalchemy import delete, exists, select

from model_store.clock import now
from model_store.repositories.audit import AuditRepository
from model_store.repositories.base import Repository
from model_store.repositories.cohorts import CohortRepository
from model_store.repositories.jobs import TERMINAL_STATES
from model_store.tables import Cohort, Dataset, Job, JobEvent, Model, ReportRow

AT_ONCE = 500


class RetentionRepository(Repository):
    """Each method removes up to AT_ONCE and says how many it removed."""

    def forget_events(self, seconds: float) -> int:
        """Progress of jobs that ended so long ago; how they ended stays with their rows."""
        ended = select(Job.id).where(Job.state.in_(TERMINAL_STATES), Job.finished_at < now() - seconds)
        old = select(JobEvent.id).where(JobEvent.job_id.in_(ended)).order_by(JobEvent.id).limit(AT_ONCE)
        ids = list(self.session.scalars(old))
        self.session.execute(delete(JobEvent).where(JobEvent.id.in_(ids)))
        return len(ids)

    def forget_jobs(self, seconds: float) -> int:
        """Jobs that ended so long ago and of which nothing is left. Those of cohorts with reports stay: what was
        withheld is found by them."""
        made = [exists().where(table.job_id == Job.id) for table in (Dataset, Model, Cohort, ReportRow)]
        made.append(exists().where(ReportRow.cohort_job_id == Job.id))
        old = select(Job.id).where(Job.state.in_(TERMINAL_STATES), Job.finished_at < now() - seconds)
        ids = list(self.session.scalars(old.where(*(~each for each in made)).limit(AT_ONCE)))
        self.session.execute(delete(Job).where(Job.id.in_(ids)))
        return len(ids)

    def forget_cohorts(self, seconds: float) -> int:
        """Cohorts that were made so long ago."""
        old = select(Cohort.owner, Cohort.job_id).where(Cohort.created_at < now() - seconds).limit(AT_ONCE)
        found = self.session.execute(old).all()
        for owner, job_id in found:
            CohortRepository(self.session).delete(owner, job_id)
            AuditRepository(self.session).record(owner, "expire cohort", job_id)
        return len(found)
