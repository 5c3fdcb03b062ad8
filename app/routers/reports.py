"""Reports on cohorts, as JSON or as a page."""

from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import HTMLResponse, JSONResponse, Response

from app.access import Identity, Reader, Services_
from app.report_page import report_page
from app.services import Services
from app.submissions import audit
from model_store.repositories import ReportRepository

router = APIRouter(tags=["reports"])
PAGE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}, "description": "a page of its own"}}


@router.get("/reports/{job_id}.html", response_class=HTMLResponse, responses=PAGE)
def get_report_page(job_id: str, services: Services_, identity: Reader) -> HTMLResponse:
    """Show the newest report on a cohort as one self-contained page."""
    return _page(job_id, _report(services, identity, job_id))


@router.get(
    "/reports/{job_id}",
    response_class=JSONResponse,
    responses={200: {"content": {"application/json": {}, "text/html": {}}, "description": "the report"}},
)
def get_report(
    job_id: str, services: Services_, identity: Reader, accept: Annotated[str, Header()] = "application/json"
) -> Response:
    """Show the newest report on the cohort of a generate job, or the report of an evaluate job.

    JSON, or a page if `Accept` asks for text/html first.
    """
    body = _report(services, identity, job_id)
    return _page(job_id, body) if _prefers_html(accept) else JSONResponse(body)


def _report(services: Services, identity: Identity, job_id: str) -> dict[str, Any]:
    with services.database.session_scope() as session:
        report = ReportRepository(session).newest(identity.owner, job_id)
        audit(session, identity, "download report", report.job_id)
        return {"job_id": report.job_id, "cohort": report.cohort_job_id, "version": report.version} | report.body


def _page(job_id: str, body: dict[str, Any]) -> HTMLResponse:
    # nothing on the page may run or load, whatever a report's texts contain
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return HTMLResponse(report_page(job_id, body), headers={"Content-Security-Policy": policy})


def _prefers_html(accept: str) -> bool:
    """Whichever of the two is named first; browsers name text/html first."""
    named = [part.split(";")[0].strip() for part in accept.split(",")]
    for media_type in named:
        if media_type in ("application/json", "text/html"):
            return media_type == "text/html"
    return False
