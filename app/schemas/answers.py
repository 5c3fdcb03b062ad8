"""Response bodies."""

from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from model_store.tables import Cohort, Dataset, Job, Model, Release
from worker.contract import STEPS

Item = TypeVar("Item")


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Problem(Answer):
    """RFC 9457. `type` is stable; `detail` is for people."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:ehr-d3pm:problem:unknown-code",
                    "title": "A code is not in the vocabulary",
                    "status": 422,
                    "detail": "unknown code 'ICD10CM:E99'; did you mean 'ICD10CM:E89'?",
                    "request_id": "5f2b7c1d9e8a4f60",
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    request_id: str | None = None
    errors: list[dict[str, str]] | None = Field(None, description="for validation errors: each field and what is wrong")


class PageAnswer(Answer, Generic[Item]):
    """A page, newest first."""

    items: list[Item]
    next_cursor: str | None = Field(description="give it as `cursor` for the next page; null at the end")


class StepAnswer(Answer):
    name: str
    value: float = Field(description="how far the step is")
    maximum: float | None = Field(description="when the step is done; null before it has begun")
    unit: str = ""


class ProgressAnswer(Answer):
    step: str | None = Field(description="the present step")
    steps: list[StepAnswer]
    remaining_seconds: float | None = Field(description="of the present step, at its pace so far")
    details: dict[str, Any] = Field(default_factory=dict, description="what the step tells, such as the loss")


class JobError(Answer):
    type: str = Field(description="a stable word, for example `bad-data` or `poison`", examples=["bad-data"])
    detail: str


class JobAnswer(Answer):
    """A piece of work. States: queued, running, cancelling, and finally succeeded, failed or cancelled."""

    id: str
    kind: str
    state: str
    progress: ProgressAnswer
    result: dict[str, Any] | None = Field(description="of a job that succeeded, for example the id of the dataset")
    error: JobError | None
    request: dict[str, Any] = Field(description="what was asked for, with every default filled in")
    attempt: int
    max_attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, job: Job) -> "JobAnswer":
        return cls(
            id=job.id,
            kind=job.kind,
            state=job.state,
            progress=_progress(job),
            result=job.result,
            error=None if job.error is None else JobError(type=job.error["type"], detail=job.error["detail"]),
            request=job.payload,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            created_at=moment(job.created_at),
            started_at=moment_or_none(job.started_at),
            finished_at=moment_or_none(job.finished_at),
        )


def _progress(job: Job) -> ProgressAnswer:
    """A job that has not begun shows its steps too, so that clients can draw their bars from the start."""
    told = dict(job.progress or {})
    steps = told.pop("steps", None) or [{"name": name, "value": 0, "maximum": None} for name in STEPS[job.kind]]
    step, remaining = told.pop("step", None), told.pop("remaining_seconds", None)
    if job.state == "succeeded":  # the last heartbeat may have been before the end
        steps = [s | {"maximum": s["maximum"] or 1, "value": s["maximum"] or 1} for s in steps]
        step, remaining = None, 0.0
    return ProgressAnswer(step=step, steps=[StepAnswer(**s) for s in steps], remaining_seconds=remaining, details=told)


class DatasetAnswer(Answer):
    """Real records at rest; counts of 1 to 10 patients are not shown."""

    id: str
    name: str
    job_id: str
    n_codes: int
    data_hash: str
    vocabulary_hash: str
    summary: dict[str, Any]
    created_at: datetime

    @classmethod
    def of(cls, row: Dataset) -> "DatasetAnswer":
        return cls(
            id=row.id,
            name=row.name,
            job_id=row.job_id,
            n_codes=row.n_codes,
            data_hash=row.data_hash,
            vocabulary_hash=row.vocabulary_hash,
            summary=row.summary,
            created_at=moment(row.created_at),
        )


class CodeAnswer(Answer):
    code: str
    records: int | None = Field(description="records that have it; null where the count may not be shown")


class ModelAnswer(Answer):
    """A trained generator."""

    id: str
    name: str
    job_id: str
    dataset_id: str
    generator: str
    n_codes: int
    manifest_hash: str
    details: dict[str, Any] = Field(description="settings, seed, hashes and training curve")
    created_at: datetime

    @classmethod
    def of(cls, row: Model) -> "ModelAnswer":
        return cls(
            id=row.id,
            name=row.name,
            job_id=row.job_id,
            dataset_id=row.dataset_id,
            generator=row.generator,
            n_codes=row.n_codes,
            manifest_hash=row.manifest_hash,
            details=row.details,
            created_at=moment(row.created_at),
        )


class CohortAnswer(Answer):
    """A finished cohort; its id is its generate job's."""

    job_id: str
    model_id: str
    dataset_id: str
    n_records: int
    manifest_hash: str
    manifest: dict[str, Any] = Field(description="enough to make the cohort again, byte for byte")
    formats: dict[str, str] = Field(description="where its records can be had, by format")
    created_at: datetime

    @classmethod
    def of(cls, row: Cohort, formats: dict[str, str]) -> "CohortAnswer":
        return cls(
            job_id=row.job_id,
            model_id=row.model_id,
            dataset_id=row.dataset_id,
            n_records=row.n_records,
            manifest_hash=row.manifest_hash,
            manifest=row.manifest,
            formats=formats,
            created_at=moment(row.created_at),
        )


class ReleaseAnswer(Answer):
    """A withheld cohort may be downloaded from now on."""

    cohort_id: str
    reason: str
    released_at: datetime

    @classmethod
    def of(cls, row: Release) -> "ReleaseAnswer":
        return cls(cohort_id=row.cohort_job_id, reason=row.reason, released_at=moment(row.created_at))
