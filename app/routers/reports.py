"""Reports on cohorts: made on demand, shown as JSON or as a page."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import HTMLResponse, JSONResponse, Response
from sqlalchemy.orm import Session

from app.access import DATA, DataOwner, Identity, Reader, Services_
from app.histories import asks_over_time, has_histories
from app.pages import report_page
from app.provenance import provenance_of
from app.schemas.answers import JobAnswer
from app.schemas.requests import EvaluateRequest
from app.services import Services
from app.shareable import shareable_report
from app.submissions import (
    NORMAL,
    IdempotencyKey,
    Named,
    Priority,
    Submission,
    accepted,
    audit,
    checked_payload,
    replayed_job,
    submit,
)
from ehr.errors import ConflictError, NotFoundError, RequestError
from ehr.report_schema import report_schema
from ehr.reports import REPORT_VERSION, Report
from ehr.shareable import ShareableReport
from model_store.repositories import (
    CohortRepository,
    DatasetRepository,
    ModelRepository,
    ReportRepository,
    WithholdingRepository,
)
from model_store.repositories.reports import CUSTODIAN, SHAREABLE
from model_store.tables import Cohort, Dataset
from worker.contract import EvaluatePayload

router = APIRouter(tags=["reports"])
For = Annotated[
    Literal["custodian", "shareable"] | None,
    Query(description="for whom the report is; if left out, the one that tells the most of those you may see"),
]
PAGE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}, "description": "a page of its own"}}


@router.post("/reports", status_code=202)
def evaluate_cohort(
    body: EvaluateRequest,
    response: Response,
    services: Services_,
    identity: DataOwner,
    key: IdempotencyKey = None,
    priority: Priority = NORMAL,
) -> JobAnswer:
    """Evaluate a finished cohort, against the data its model learned from or against another data set. Needs the scope
    `data`: what is measured, how long it takes and what comes of it depend on real records.

    Only the former includes the privacy attacks, and only that can withhold the cohort. The report's id is the job's.
    """
    submission = Submission(identity, "POST /reports", key, body.model_dump(mode="json"), priority=priority)
    if (job := replayed_job(services, submission)) is not None:
        return accepted(identity, response, job, replayed=True)
    with services.database.read_scope() as session:
        cohort = CohortRepository(session).get(identity.owner, body.cohort_id)
        dataset = _compared_with(session, identity.owner, body.dataset_id, cohort)
    if asks_over_time(cohort.manifest.get("request") or {}) and not has_histories(dataset):
        raise RequestError("dataset_id: the cohort was asked for something over time; name data of `unit=history`")
    if body.labels is not None:
        services.check_codes(dataset, body.labels)
    values = {"cohort_job_id": body.cohort_id, "dataset_id": body.dataset_id, "labels": body.labels}
    payload = checked_payload(EvaluatePayload, seed=body.seed, **values)
    named: Named = {CohortRepository: cohort.job_id, DatasetRepository: dataset.id}
    return accepted(identity, response, *submit(services, submission, "evaluate", payload, named))


@router.get("/reports/schema.json")
def get_report_schema(identity: Reader) -> dict[str, Any]:
    """Show the JSON schema that every report follows."""
    return report_schema()


@router.get("/reports/{job_id}.html", response_class=HTMLResponse, responses=PAGE)
def get_report_page(job_id: str, services: Services_, identity: Reader, reader: For = None) -> HTMLResponse:
    """Show the newest report on a cohort as one self-contained page."""
    return _page(services, identity, report_for(services, identity, job_id, reader))


@router.get(
    "/reports/{job_id}",
    response_class=JSONResponse,
    responses={200: {"content": {"application/json": {}, "text/html": {}}, "description": "the report"}},
)
def get_report(
    job_id: str,
    services: Services_,
    identity: Reader,
    reader: For = None,
    accept: Annotated[str, Header()] = "application/json",
) -> Response:
    """Show the report on the cohort of a generate job, or the report of an evaluate job.

    With the scope `data` it is the newest that compares the cohort with real records. For everyone else it is about the
    cohort's own records, and what was found out about its model once; where the cohort may not leave, neither may that.
    JSON as `GET /reports/schema.json` describes it, or a page if `Accept` asks for text/html first.
    """
    report = report_for(services, identity, job_id, reader)
    return _page(services, identity, report) if _prefers_html(accept) else JSONResponse(report.model_dump(mode="json"))


def _compared_with(session: Session, owner: str, dataset_id: str | None, cohort: Cohort) -> Dataset:
    """The real records that were named, else those that the cohort's model learned from."""
    try:
        return DatasetRepository(session).get(owner, dataset_id or cohort.dataset_id)
    except NotFoundError:
        if dataset_id is not None:
            raise
        raise ConflictError(
            "the data that the cohort's model learned from was deleted: name other real records in dataset_id"
        ) from None


def report_for(
    services: Services, identity: Identity, job_id: str, wanted: str | None, looked_at: bool = True
) -> Report | ShareableReport:
    """The report as the caller may see it. `looked_at`: as opposed to its verdict being listed; that is not audited."""
    if wanted == CUSTODIAN:
        identity.require(DATA)
    for_custodians = identity.is_custodian and wanted != SHAREABLE
    read = _with_real_records if for_custodians else _by_itself
    with services.database.session_scope() as session:
        report = read(session, identity, job_id)
        shown = report.job_id if isinstance(report, Report) else report.cohort_id
        if looked_at:
            audit(session, identity, "download report", shown, reader=report.reader)
        return report


def _with_real_records(session: Session, identity: Identity, job_id: str) -> Report:
    row = ReportRepository(session).newest(identity.owner, job_id)
    if row.version != REPORT_VERSION:
        raise ConflictError("this report was made by an earlier version of the service: evaluate the cohort again")
    return Report.model_validate(row.body)


def _by_itself(session: Session, identity: Identity, job_id: str) -> ShareableReport:
    description = ReportRepository(session).description(identity.owner, job_id)
    if not identity.is_custodian:  # figures about records that may not leave are as good as some of them
        WithholdingRepository(session).check(identity.owner, description.cohort_id)
    try:
        details = ModelRepository(session).get(identity.owner, description.model_id).details
    except NotFoundError:
        details = {}  # a cohort outlives its model
    return shareable_report(description, details)


def _page(services: Services, identity: Identity, report: Report | ShareableReport) -> HTMLResponse:
    with services.database.read_scope() as session:
        provenance = provenance_of(session, identity.owner, report)
    # nothing on the page may run or load, whatever a report's texts contain
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(report_page(report, provenance), headers={"Content-Security-Policy": policy})


def _prefers_html(accept: str) -> bool:
    """Whichever of the two is named first; browsers name text/html first."""
    named = (part.split(";")[0].strip() for part in accept.split(","))
    return next((each for each in named if each in ("application/json", "text/html")), None) == "text/html"
