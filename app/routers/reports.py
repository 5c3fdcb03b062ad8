"""Reports on cohorts: made on demand, shown as JSON or as a page."""

from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import HTMLResponse, JSONResponse, Response

from app.access import Identity, Maker, Reader, Services_
from app.pages import report_page
from app.schemas.answers import JobAnswer
from app.schemas.requests import EvaluateRequest
from app.services import Services
from app.submissions import IdempotencyKey, Named, Submission, accepted, audit, checked_payload, replayed_job, submit
from ehr.errors import ConflictError
from ehr.reports import REPORT_VERSION, Report, report_schema
from model_store.repositories import CohortRepository, DatasetRepository, ReportRepository
from worker.contract import EvaluatePayload

router = APIRouter(tags=["reports"])
PAGE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}, "description": "a page of its own"}}


@router.post("/reports", status_code=202)
def evaluate_cohort(
    body: EvaluateRequest, response: Response, services: Services_, identity: Maker, key: IdempotencyKey = None
) -> JobAnswer:
    """Evaluate a finished cohort, against the data its model learned from or against another data set.

    Only the former includes the privacy attacks, and only that can withhold the cohort. The report's id is the job's.
    """
    submission = Submission(identity, "POST /reports", key, body.model_dump(mode="json"))
    if (job := replayed_job(services, submission)) is not None:
        return accepted(response, job, replayed=True)
    with services.database.read_scope() as session:
        cohort = CohortRepository(session).get(identity.owner, body.cohort_id)
        dataset = DatasetRepository(session).get(identity.owner, body.dataset_id or cohort.dataset_id)
    if body.labels is not None:
        services.check_codes(dataset, body.labels)
    values = {"cohort_job_id": body.cohort_id, "dataset_id": body.dataset_id, "labels": body.labels}
    payload = checked_payload(EvaluatePayload, seed=body.seed, **values)
    named: Named = {CohortRepository: cohort.job_id, DatasetRepository: dataset.id}
    return accepted(response, *submit(services, submission, "evaluate", payload, named))


@router.get("/reports/schema.json")
def get_report_schema(identity: Reader) -> dict[str, Any]:
    """Show the JSON schema that every report follows."""
    return report_schema()


@router.get("/reports/{job_id}.html", response_class=HTMLResponse, responses=PAGE)
def get_report_page(job_id: str, services: Services_, identity: Reader) -> HTMLResponse:
    """Show the newest report on a cohort as one self-contained page."""
    return _page(_report(services, identity, job_id))


@router.get(
    "/reports/{job_id}",
    response_class=JSONResponse,
    responses={200: {"content": {"application/json": {}, "text/html": {}}, "description": "the report"}},
)
def get_report(
    job_id: str, services: Services_, identity: Reader, accept: Annotated[str, Header()] = "application/json"
) -> Response:
    """Show the newest report on the cohort of a generate job, or the report of an evaluate job.

    JSON as `GET /reports/schema.json` describes it, or a page if `Accept` asks for text/html first.
    """
    body = _report(services, identity, job_id)
    return _page(body) if _prefers_html(accept) else JSONResponse(body)


def _report(services: Services, identity: Identity, job_id: str) -> dict[str, Any]:
    with services.database.session_scope() as session:
        report = ReportRepository(session).newest(identity.owner, job_id)
        audit(session, identity, "download report", report.job_id)
        if report.version != REPORT_VERSION:
            raise ConflictError("this report was made by an earlier version of the service: evaluate the cohort again")
        return report.body


def _page(body: dict[str, Any]) -> HTMLResponse:
    # nothing on the page may run or load, whatever a report's texts contain
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return HTMLResponse(report_page(Report.model_validate(body)), headers={"Content-Security-Policy": policy})


def _prefers_html(accept: str) -> bool:
    """Whichever of the two is named first; browsers name text/html first."""
    named = (part.split(";")[0].strip() for part in accept.split(","))
    return next((each for each in named if each in ("application/json", "text/html")), None) == "text/html"
