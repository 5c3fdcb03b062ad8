"""Whether a cohort may leave the service.

A report whose privacy verdict is `fail` withholds its cohort, and so does an evaluation that was asked for and has not
given a report. Someone with the scope `admin` may release it; a report that fails after the release withholds it again.
A good report does not undo a bad one: else one would only have to evaluate until chance helps. Nor does asking for the
same records again in smaller numbers: what withholds a cohort withholds every other that one model has drawn with the
same seed and the same conditions, because the records of the smaller are among those of the larger.
"""

from typing import Any

from sqlalchemy import func, select

from ehr.errors import ConflictError, UnevaluatedError, WithheldError
from model_store.repositories.base import Repository
from model_store.repositories.cohorts import CohortRepository
from model_store.tables import Cohort, Job, Release, ReportRow


def _asked(payload: dict[str, Any]) -> tuple[Any, ...]:
    """What decides on the records of a cohort, except how many there are."""
    conditions = payload.get("conditions") or {}
    codes = [sorted(conditions.get(name) or []) for name in ("all_of", "none_of")]
    groups = sorted(sorted(group) for group in conditions.get("any_of") or [])
    targets = sorted((sorted(target["codes"]), target["share"]) for target in payload.get("targets") or [])
    return payload.get("seed", 0), codes, groups, targets


class WithholdingRepository(Repository):
    def check(self, owner: str, cohort_id: str) -> None:
        """WithheldError or UnevaluatedError if the owner's cohort may not leave; NotFoundError if there is none."""
        cohort = CohortRepository(self.session).get(owner, cohort_id)
        released = self._released_at(cohort_id)
        for same in [cohort_id, *self._same_records(cohort)]:
            found = self._against(same, max(filter(None, (released, self._released_at(same))), default=None))
            if found is not None:
                report_id, why = found
                whose = "" if same == cohort_id else f" The cohort {same} has the same records."
                raise WithheldError(f"The cohort is withheld.{whose} {why}", cohort_id, report_id)
        if released is None:
            self._check_evaluation(cohort_id)

    def _against(self, cohort_id: str, released: float | None) -> tuple[str, str | None] | None:
        """The newest report that withholds a cohort and that no release has answered, and why it does."""
        query = select(ReportRow.job_id, ReportRow.withholds).where(
            ReportRow.cohort_job_id == cohort_id, ReportRow.withholds.is_not(None)
        )
        if released is not None:
            query = query.where(ReportRow.created_at > released)
        found = self.session.execute(query.order_by(ReportRow.created_at.desc()).limit(1)).one_or_none()
        return None if found is None else (found.job_id, found.withholds)

    def _same_records(self, cohort: Cohort) -> list[str]:
        """Other cohorts with a report that withholds them, drawn by the same model for the same request."""
        made_by = self.session.get(Job, cohort.job_id)
        if made_by is None:
            return []
        withheld = select(ReportRow.cohort_job_id).where(ReportRow.withholds.is_not(None))
        others = (
            select(Job)
            .join(Cohort, Cohort.job_id == Job.id)
            .where(Cohort.model_id == cohort.model_id, Cohort.job_id != cohort.job_id, Cohort.job_id.in_(withheld))
        )
        asked = _asked(made_by.payload)
        return [job.id for job in self.session.scalars(others) if _asked(job.payload) == asked]

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
            self._insert(row)
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
        judged = select(ReportRow.job_id).where(ReportRow.cohort_job_id == cohort_id, ReportRow.privacy.is_not(None))
        if self.session.scalar(judged.limit(1)) is not None:
            return
        job = self.session.get(Job, evaluation)
        if job is not None and job.state in ("queued", "running"):
            raise UnevaluatedError("The cohort is still being evaluated", evaluation)
        raise WithheldError("The cohort is withheld: its evaluation gave no report.", cohort_id)

    def _released_at(self, cohort_id: str) -> float | None:
        return self.session.scalar(select(func.max(Release.created_at)).where(Release.cohort_job_id == cohort_id))
