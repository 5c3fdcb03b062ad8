"""Response bodies."""

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ehr.shareable import ModelVerdicts
from model_store.tables import Job
from runtime.traces import HEADER
from worker.contract import Kind, steps_of

NOT_ASKED_FOR = ("warnings", HEADER)  # of a payload: what the service has added

State = Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"]
Item = TypeVar("Item")


def _moment(value: Any) -> Any:
    return datetime.fromtimestamp(value, UTC) if isinstance(value, float) else value


Moment = Annotated[datetime, BeforeValidator(_moment)]  # rows have seconds since 1970


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)

    @classmethod
    def of(cls, row: Any, **more: Any) -> Self:
        """The fields that `row` has under the same names, and `more`."""
        return cls.model_validate({name: getattr(row, name) for name in cls.model_fields if name not in more} | more)


class SupportAnswer(Answer):
    """How many of the synthetic records that the model drew once, after training, satisfy something.

    No patient is counted: the answer is the same whatever became of the data since.
    """

    matching: int | None = Field(description="drawn records that satisfy it; null if not known")
    drawn: int | None = Field(description="records that were drawn")
    share: float | None = Field(description="`matching` / `drawn`")


class CandidateAnswer(Answer):
    """A code of the vocabulary that may have been meant."""

    code: str = Field(description="a code, or a wildcard such as `ICD10CM:E11*`; can be sent as it is")
    name: str | None = Field(description="what it is called; null where that is not known")


class ReplacementAnswer(CandidateAnswer):
    """The closest code, in the place of one that the vocabulary does not have."""

    field: str = Field(description="`all_of`, `any_of`, `none_of` or `targets`")
    asked: str


class RelaxationAnswer(Answer):
    """The nearest request that can be met and would not be withheld; ready to be sent."""

    conditions: dict[str, list[str] | list[list[str]]]
    targets: list[dict[str, Any]]
    history: dict[str, Any] | None = Field(None, description="of models of histories: instead of conditions")
    dropped: list[dict[str, Any]] = Field(
        description="what had to go: the field and its codes, with a `reason` if those are unknown and none is close"
    )
    replaced: list[ReplacementAnswer] = Field(
        default_factory=list, description="unknown codes that became the closest one"
    )
    support: SupportAnswer


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
                    "detail": "unknown code 'ICD10CM:E85'; did you mean 'ICD10CM:E84' (Cystic fibrosis)?",
                    "candidates": [{"code": "ICD10CM:E84", "name": "Cystic fibrosis"}],
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
    candidates: list[CandidateAnswer] | None = Field(
        None, description="for unknown and ambiguous codes: what may have been meant, the closest first"
    )
    relaxation: RelaxationAnswer | None = Field(None, description="for conditions that cannot be met: the nearest ones")


class TargetSupportAnswer(Answer):
    codes: list[str]
    share: float
    meeting: SupportAnswer = Field(description="drawn records that satisfy the condition and have one of the codes")
    others: SupportAnswer = Field(description="drawn records that satisfy the condition and have none of them")


class EstimateAnswer(Answer):
    """What a request would take, before it is sent."""

    feasible: bool = Field(description="false: `POST /generate` would answer 422")
    problem: str | None = Field(description="why it is not feasible")
    candidates: list[CandidateAnswer] = Field(
        default_factory=list,
        description="of an unknown or ambiguous code: what may have been meant, the closest first",
    )
    withheld: str | None = Field(description="why the cohort would wait for a custodian's release; null: it would not")
    training_records: int | None = Field(
        description="that the model has learned from, rounded to two digits; null if not known"
    )
    support: SupportAnswer = Field(description="of the condition, among the records that the model drew once")
    unknown: str | None = Field(description="why `support` is not known; null if it is")
    targets: list[TargetSupportAnswer]
    method: str | None = Field(description="how conditions would be met; null without conditions")
    steps: int | None = Field(description="network calls for each record; null if there are none or it is not known")
    sampling: str = Field(description="how records would be drawn: `dealt` or `independent`")
    parts: int = Field(description="pieces that workers take")
    workers: int | None = Field(description="parts that can be made at a time at present; null if not known")
    seconds: float | None = Field(description="of the generate job, once it runs; null if not known")
    report_seconds: float | None = Field(
        description="what the last report on a cohort of this model took; null if there was none, and without `data`"
    )
    memory_gib: float | None = Field(description="the most a worker would hold; null if not known")
    warnings: list[str]
    relaxation: RelaxationAnswer | None = Field(
        description="the nearest request that can be met and would not be withheld, if this one is not"
    )


class PartAnswer(Answer):
    number: int
    first_record: int
    n_records: int
    bytes: int | None = Field(description="null for a key without the scope `data` while the cohort may not leave")
    sha256: str | None = Field(description="null likewise")
    path: str = Field(description="where the part can be had, as Parquet with the columns record_id and code")


class PartsAnswer(Answer):
    """The finished parts of a cohort, whatever became of its job."""

    job_id: str
    state: State
    n_records: int = Field(description="that were asked for")
    finished_records: int
    parts: list[PartAnswer]


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
    kind: Kind
    state: State
    progress: ProgressAnswer
    result: dict[str, Any] | None = Field(description="of a job that succeeded, for example the id of the dataset")
    error: JobError | None
    request: dict[str, Any] = Field(description="what was asked for, with every default filled in")
    warnings: list[str] = Field(description="what the service had to say about the request when it accepted it")
    attempt: int
    max_attempts: int
    priority: int = Field(0, description="among the jobs of its owner that wait: the highest first")
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None

    @classmethod
    def of(cls, row: Job, **more: Any) -> Self:
        request = {name: value for name, value in row.payload.items() if name not in NOT_ASKED_FOR}
        warnings = row.payload.get("warnings", [])
        return super().of(row, progress=_progress(row), request=request, warnings=warnings, **more)


class LogLine(Answer):
    """A job came into a state, or began a step: one of the two is given."""

    at: Moment
    state: State | None
    step: str | None
    attempt: int | None = Field(description="of the state `running`: which attempt began")
    error: JobError | None = Field(description="of the state `failed`")


def _progress(job: Job) -> ProgressAnswer:
    """A job that has not begun shows its steps too, so that clients can draw their bars from the start."""
    details = dict(job.progress or {})
    names = steps_of(job.kind, job.payload)
    steps = details.pop("steps", None) or [{"name": name, "value": 0, "maximum": None} for name in names]
    step, remaining = details.pop("step", None), details.pop("remaining_seconds", None)
    if job.state == "succeeded":  # the last heartbeat may have been before the end
        steps = [s | {"maximum": s["maximum"] or 1, "value": s["maximum"] or 1} for s in steps]
        step, remaining = None, 0.0
    return ProgressAnswer(
        step=step, steps=[StepAnswer(**s) for s in steps], remaining_seconds=remaining, details=details
    )


class DatasetAnswer(Answer):
    """Real records at rest; counts of 1 to 10 patients are not shown."""

    id: str
    name: str
    job_id: str
    n_codes: int
    data_hash: str | None = Field(description="null without the scope `data`")
    vocabulary_hash: str
    summary: dict[str, Any] = Field(description="without the scope `data`: nothing that was counted")
    created_at: Moment


class ModelAnswer(Answer):
    """A trained generator."""

    id: str
    name: str
    job_id: str
    dataset_id: str
    generator: str
    n_codes: int
    manifest_hash: str | None = Field(description="sha256 of its manifest; null without the scope `data`")
    verdicts: ModelVerdicts = Field(description="what was found out about it once, whatever is asked of it later")
    details: dict[str, Any] = Field(description="settings; with the scope `data` all there is")
    created_at: Moment


class CohortAnswer(Answer):
    """A finished cohort; its id is its generate job's."""

    job_id: str
    model_id: str
    dataset_id: str
    n_records: int
    manifest_hash: str | None = Field(description="sha256 of its manifest; null without the scope `data`")
    manifest: dict[str, Any] = Field(description="enough to make the cohort again, byte for byte")
    formats: dict[str, str] = Field(description="where its records can be had, by format")
    leaves_out: dict[str, str] = Field(description="what a format cannot carry")
    created_at: Moment
