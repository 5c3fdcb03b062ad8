"""Whether a cohort may leave the service.

Four things withhold it: its model, if the audit or the reference cohort failed; what it asks for, if hardly any patient
would satisfy that; a report whose privacy verdict is `fail`, on it or on a cohort that asked for the same people or
more; and an evaluation that was asked for and has given no report. A custodian may release it; a report that fails
after the release withholds it again. A good report does not undo a bad one: else one would only have to evaluate until
chance helps.

Nothing is forgotten when a cohort or a model is deleted: requests, reports and what they withhold have rows of their
own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update

from ehr.audits import ModelAudit, withholding_verdict
from ehr.canonical_request import CanonicalRequest
from ehr.errors import ConflictError, UnevaluatedError, WithheldError
from ehr.shareable import ModelReport
from model_store.repositories.base import Repository
from model_store.repositories.cohorts import CohortRepository
from model_store.tables import Cohort, CohortRequest, Dataset, Job, Model, Release, ReportRow


@dataclass(frozen=True)
class Against:
    """What withholds records that nobody has made a cohort of, and why."""

    by: str
    why: str


class WithholdingRepository(Repository):
    def note_end_of(self, model: Model) -> None:
        """A model is about to be deleted: what it withholds stays withheld."""
        if (verdict := withholding_verdict(model.details)) is not None:
            rows = update(CohortRequest).where(CohortRequest.model_id == model.id)
            self.session.execute(rows.values(model_withholds=verdict.reason))

    def check(self, owner: str, cohort_id: str) -> None:
        """WithheldError or UnevaluatedError if the owner's cohort may not leave; NotFoundError if there is none."""
        cohort = CohortRepository(self.session).get(owner, cohort_id)
        job, released = self.session.get(Job, cohort_id), self._released_at(cohort_id)
        if released is None:
            self._check_origin(cohort_id, cohort.model_id)
        self._check_reports(owner, cohort_id, cohort.model_id, job, released)
        if released is None:
            self._check_evaluation(cohort, job)

    def check_part(self, owner: str, job: Job) -> None:
        """The same for a part of a cohort that may not be finished: asked to be evaluated, it must have been."""
        if job.state == "succeeded":
            self.check(owner, job.id)
        elif job.payload.get("evaluate", True):
            raise UnevaluatedError(
                "Parts leave before their cohort only if it was asked for with evaluate=false: "
                "this one's privacy is not known until it is whole and evaluated."
            )
        else:
            model_id = str(job.payload.get("model_id"))
            self._check_origin(job.id, model_id)
            self._check_reports(owner, job.id, model_id, job, None)

    def against(self, owner: str, model: Model, asked: CanonicalRequest) -> Against | None:
        """What would withhold a cohort that asks this of a model, besides what its request itself says; None if nothing
        does. Somebody must have judged the model, as for anyone who may not have cohorts evaluated."""
        verdict = withholding_verdict(model.details)
        if verdict is not None:
            return Against("model", verdict.reason)
        if (why := _unjudged(model.details)) is not None:
            return Against("model", why)
        for other in self._withheld_jobs(owner, model.id):
            found = self._against(other.id, None) if asked.is_within(self._asked(other)) else None
            if found is not None:
                return Against("report", found[1] or "")
        return None

    def releases(self, owner: str, limit: int = 100) -> list[Release]:
        """Newest first."""
        query = select(Release).where(Release.owner == owner).order_by(Release.created_at.desc()).limit(limit)
        return list(self.session.scalars(query))

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

    def _check_origin(self, cohort_id: str, model_id: str) -> None:
        """What is known of the cohort without looking at it comes first: it tells nothing of what a report found."""
        model, asked = self.session.get(Model, model_id), self.session.get(CohortRequest, cohort_id)
        if model is not None:
            verdict = withholding_verdict(model.details)
            why = None if verdict is None else verdict.reason
        else:
            why = None if asked is None else asked.model_withholds
        if why is not None:
            raise WithheldError("Every cohort of this model is withheld.", cohort_id, "model", why)
        if asked is not None and asked.withholds is not None:
            raise WithheldError("The cohort is withheld.", cohort_id, "request", asked.withholds)

    def _check_reports(
        self, owner: str, cohort_id: str, model_id: str, job: Job | None, released: float | None
    ) -> None:
        """No report may speak against the cohort, nor against one that asked for the same people or more."""
        for other, same_records in [(cohort_id, True), *self._others(owner, model_id, job)]:
            answered = [released, self._released_at(other) if same_records else None]
            found = self._against(other, max(filter(None, answered), default=None))
            if found is not None:
                report_id, why = found
                whose = "" if other == cohort_id else f" So is {other}, which asked for the same people or more."
                raise WithheldError(f"The cohort is withheld.{whose}", cohort_id, "report", why, report_id)

    def _against(self, cohort_id: str, released: float | None) -> tuple[str, str | None] | None:
        """The newest report that withholds a cohort and that no release has answered, and why it does."""
        query = select(ReportRow.job_id, ReportRow.withholds).where(
            ReportRow.cohort_job_id == cohort_id, ReportRow.withholds.is_not(None)
        )
        if released is not None:
            query = query.where(ReportRow.created_at > released)
        found = self.session.execute(query.order_by(ReportRow.created_at.desc()).limit(1)).one_or_none()
        return None if found is None else (found.job_id, found.withholds)

    def _others(self, owner: str, model_id: str, job: Job | None) -> list[tuple[str, bool]]:
        """Other cohorts of the model, deleted ones too, with a report that withholds them, if they asked for the same
        people or more; and whether those have the same records, as one of several sizes with one seed has."""
        if job is None:
            return []
        asked, seed, found = self._asked(job), job.payload.get("seed"), []
        for other in (each for each in self._withheld_jobs(owner, model_id) if each.id != job.id):
            theirs = self._asked(other)
            if asked.is_within(theirs):
                found.append((other.id, asked == theirs and seed == other.payload.get("seed")))
        return found

    def _withheld_jobs(self, owner: str, model_id: str) -> list[Job]:
        """Jobs of the model's cohorts, deleted ones too, with a report that withholds them."""
        withheld = select(ReportRow.cohort_job_id).where(ReportRow.owner == owner, ReportRow.withholds.is_not(None))
        jobs = select(Job).where(Job.id.in_(withheld), Job.payload["model_id"].as_string() == model_id)
        return list(self.session.scalars(jobs.order_by(Job.created_at, Job.id)))

    def _asked(self, job: Job) -> CanonicalRequest:
        """Requests of earlier versions have no row and are taken as they were written."""
        row = self.session.get(CohortRequest, job.id)
        return CanonicalRequest.as_written(job.payload) if row is None else CanonicalRequest.from_json(row.request)

    def _check_evaluation(self, cohort: Cohort, made_by: Job | None) -> None:
        """If an evaluation was asked for with the cohort, it must have judged its privacy, or another must have. What
        was made for someone who may not cause work on real records is judged by its model instead."""
        evaluation = ((made_by.result or {}) if made_by is not None else {}).get("evaluate_job_id")
        by_model = made_by is not None and not made_by.payload.get("against_real", True)
        if evaluation is None and not by_model:
            return
        judged = select(ReportRow.job_id).where(
            ReportRow.cohort_job_id == cohort.job_id, ReportRow.privacy.is_not(None)
        )
        if self.session.scalar(judged.limit(1)) is not None:
            return
        if by_model:
            self._check_model(cohort)
            return
        job = self.session.get(Job, evaluation)
        if job is not None and job.state in ("queued", "running"):
            raise UnevaluatedError("The cohort is still being evaluated", evaluation)
        if self.session.get(Dataset, cohort.dataset_id) is None:
            why = "Its evaluation gave no report, and the data that its model learned from was deleted."
            raise WithheldError("The cohort is withheld.", cohort.job_id, "data", why)
        raise WithheldError("The cohort is withheld.", cohort.job_id, "evaluation", "Its evaluation gave no report.")

    def _check_model(self, cohort: Cohort) -> None:
        """Somebody must have judged the model, and nobody must have found it wanting."""
        model = self.session.get(Model, cohort.model_id)
        if (why := _unjudged({} if model is None else model.details)) is not None:
            raise WithheldError("The cohort is withheld.", cohort.job_id, "model", why)

    def _released_at(self, cohort_id: str) -> float | None:
        return self.session.scalar(select(func.max(Release.created_at)).where(Release.cohort_job_id == cohort_id))


def _unjudged(details: Mapping[str, Any]) -> str | None:
    """Why a model does not vouch for its cohorts; None if it does."""
    report = ModelReport.of(details)
    if report is None and ModelAudit.of(details) is None:
        return "Nobody has judged the privacy of its model."
    if report is not None and report.withholds:
        return "So is the cohort that was evaluated for all of its model."
    return None
