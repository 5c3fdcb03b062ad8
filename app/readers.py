"""What is shown to whom. Custodians (scope `data`) hold the real records and see all that their owner has; everyone
else sees what is named here. A field that nobody has thought of stays inside; docs/privacy.md has the reason for each
that does not."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.access import DATA, Identity
from app.schemas.answers import CohortAnswer, DatasetAnswer, JobAnswer, ModelAnswer
from app.schemas.codes import CodeAnswer
from ehr.formats import WRITERS
from ehr.shareable import ModelVerdicts
from model_store.tables import Cohort, Dataset, Job, JobEvent, Model
from worker.contract import KINDS

# Kind of job -> what its result tells everyone. Jobs that read or measure real records are custodians' alone: how long
# one takes, and whether it fails, depends on those records.
RESULTS: dict[str, tuple[str, ...]] = {
    "train": ("model_id", "preset"),
    "generate": ("cohort_id", "records", "evaluate_job_id"),
    "export": ("cohort_id", "written", "records"),
}
ERRORS = ("generate", "export")  # kinds whose errors come from the model, the request and places outside alone
# The same data, settings and seed give the same model: whoever knows all patients but one could train with each guess
# at the last one, and compare what is drawn. So the seed of a training is for those who hold the data.
NOT_IN_REQUESTS = {"train": ("seed",)}
SUMMARY = ("codes", "min_records", "may_be_attacked")
DETAILS = (
    "tags",
    "notes",
    "preset",
    "settings",
    "test_share",
    "holdout_share",
    "costs",
    "dataset_id",
    "vocabulary_hash",
)
MANIFEST = ("format", "version", "vocabulary_hash", "request", "libraries", "dates", "warnings", "resolved", "n_parts")
SOURCE = ("id", "generator", "dataset_id", "test_share", "holdout_share")


def kinds_for(identity: Identity, kind: str | None) -> Sequence[str]:
    """The kinds of jobs that a list may have, if it is to have this kind (None: any)."""
    known = KINDS if identity.is_custodian else tuple(RESULTS)
    return [each for each in known if kind in (None, each)]


def job_answer(identity: Identity, row: Job) -> JobAnswer:
    """ScopeError for a job that only custodians may see."""
    answer = JobAnswer.of(row)
    if identity.is_custodian:
        return answer
    if row.kind not in RESULTS:
        identity.require(DATA)
    error = answer.error
    if error is not None and row.kind not in ERRORS:
        error = error.model_copy(update={"detail": "a key with the scope 'data' sees why"})
    steps = [step.model_copy(update=_share(row.kind, step.value, step.maximum)) for step in answer.progress.steps]
    progress = answer.progress.model_copy(update={"steps": steps, "details": {}})
    result = None if answer.result is None else _only(answer.result, RESULTS[row.kind])
    request = _only(answer.request, [name for name in answer.request if name not in NOT_IN_REQUESTS.get(row.kind, ())])
    return answer.model_copy(update={"result": result, "error": error, "progress": progress, "request": request})


def event_data(identity: Identity, kind: str, event: JobEvent) -> dict[str, Any]:
    """What an event of such a job tells."""
    if identity.is_custodian:
        return event.data
    if event.kind == "progress":
        steps = [step | _share(kind, step["value"], step["maximum"]) for step in event.data.get("steps", [])]
        return _only(event.data, ("step", "remaining_seconds")) | {"steps": steps}
    return _only(event.data, ("state", "attempt", *(("error",) if kind in ERRORS else ())))


def _share(kind: str, value: float, maximum: float | None) -> dict[str, Any]:
    """How far a step is; of a training only as a share, since its steps are counted in patients."""
    if kind in ERRORS or maximum is None:
        return {}
    return {"value": round(value / max(maximum, 1), 2), "maximum": 1, "unit": ""}


def dataset_answer(identity: Identity, row: Dataset) -> DatasetAnswer:
    if identity.is_custodian:
        return DatasetAnswer.of(row)
    return DatasetAnswer.of(row, summary=_only(row.summary, SUMMARY), data_hash=None)


def code_answer(identity: Identity, answer: CodeAnswer) -> CodeAnswer:
    return answer if identity.is_custodian else answer.model_copy(update={"records": None})


def model_answer(identity: Identity, row: Model) -> ModelAnswer:
    verdicts = ModelVerdicts.of(row.details)
    if identity.is_custodian:
        return ModelAnswer.of(row, verdicts=verdicts)
    return ModelAnswer.of(row, verdicts=verdicts, details=_only(row.details, DETAILS), manifest_hash=None)


def cohort_answer(identity: Identity, row: Cohort) -> CohortAnswer:
    places = {writer.name: f"/cohorts/{row.job_id}/records?format={writer.name}" for writer in WRITERS}
    leaves_out = {writer.name: writer.leaves_out for writer in WRITERS if writer.leaves_out}
    if identity.is_custodian:
        return CohortAnswer.of(row, formats=places, leaves_out=leaves_out)
    # The hash covers that of the data, and everything else in the manifest can be known: a guess could be tried out.
    manifest = _only(row.manifest, MANIFEST) | {"model": _only(row.manifest.get("model") or {}, SOURCE)}
    return CohortAnswer.of(row, formats=places, leaves_out=leaves_out, manifest=manifest, manifest_hash=None)


def _only(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}
