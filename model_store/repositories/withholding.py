"""Whether a cohort may leave the service.

A report whose privacy verdict is `fail` withholds its cohort, and so does an evaluation that was asked for and has not
given a report. Someone with the scope `admin` may release it; a report that fails after the release withholds it again.
A good report does not undo a bad one: else one would only have to evaluate until chance helps.
"""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from model_store.errors import ConflictError, UnevaluatedError, WithheldError
from model_store.repositories.cohorts import CohortRepository
from model_store.tables import Job, Release, Report


def _how(cohort_id: str) -> str:
    return f"Someone with the scope 'admin' can release it: POST /cohorts/{cohort_id}/release."


class WithholdingRepository:
    def __init__(self, session: Session) -> None:
        self.session = session

    def check(self, owner: str, cohort_id: str) -> None:
        """WithheldError or UnevaluatedError if the owner's cohort may not leave; NotFoundError if there is none."""
        CohortRepository(self.session).get(owner, cohort_id)
        released = self._released_at(cohort_id)
        against = select(Report.job_id, Report.withholds).where(
            Report.cohort_job_id == cohort_id, Report.withholds.is_not(None)
        )
        if released is not None:
            against = against.where(Report.created_at > released)
        found = self.session.execute(against.order_by(Report.created_at.desc()).limit(1)).one_or_none()
        if found is not None:
            raise WithheldError(
                f"The cohort is withheld. {found.withholds} See GET /reports/{found.job_id}. {_how(cohort_id)}"
            )
        if released is None:
            self._check_evaluation(cohort_id)

    def check_part(self, owner: str, job: Job) -> None:
        """The same for a part of a cohort that may not be finished: asked to be evaluated, it must have been."""
        if job.state == "succeeded":
            self.check(owner, job.id)
        elif job.payload.get("evaluate", True):
            raise UnevaluatedError(
                "Parts leave before their cohort only if it was asked for with evaluate=false: "
                "this one's privacy is not known until it is whole and evaluated."
            )

    def release(self, owner: str, cohort_id: str, reason: str, key_prefix: str | None) -> Release:
        """Let a withheld cohort go; again: the release of that time. ConflictError if nothing ever held it."""
        try:
            self.check(owner, cohort_id)
        except (WithheldError, UnevaluatedError):
            row = Release(cohort_job_id=cohort_id, owner=owner, key_prefix=key_prefix, reason=reason)
            self.session.add(row)
            self.session.flush()
            self.session.refresh(row)
            return row
        query = select(Release).where(Release.cohort_job_id == cohort_id).order_by(Release.created_at.desc()).limit(1)
        earlier = self.session.scalar(query)
        if earlier is None:
            raise ConflictError("the cohort is not withheld")
        return earlier

    def _check_evaluation(self, cohort_id: str) -> None:
        """If an evaluation was asked for with the cohort, it must have judged its privacy, or another must have."""
        made_by = self.session.get(Job, cohort_id)
        evaluation = ((made_by.result or {}) if made_by is not None else {}).get("evaluate_job_id")
        if evaluation is None:
            return
        judged = select(Report.job_id).where(Report.cohort_job_id == cohort_id, Report.privacy.is_not(None)).limit(1)
        if self.session.scalar(judged) is not None:
            return
        job = self.session.get(Job, evaluation)
        if job is not None and job.state in ("queued", "running"):
            raise UnevaluatedError(f"The cohort is still being evaluated: see GET /jobs/{evaluation}.")
        raise WithheldError(
            "The cohort is withheld: its evaluation gave no report. Evaluate it again (POST /reports). "
            f"{_how(cohort_id)}"
        )

    def _released_at(self, cohort_id: str) -> float | None:
        return self.session.scalar(select(func.max(Release.created_at)).where(Release.cohort_job_id == cohort_id))
