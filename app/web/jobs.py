"""Jobs: what runs, waits and failed, and why."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from app.access import Anyone, Identity, Services_
from app.library import Cursor
from app.pages.svg import curve
from app.readers import event_data
from app.routers.jobs import get_job, get_job_log
from app.schemas.answers import JobAnswer, State
from app.services import Services
from app.submissions import SCOPE_OF
from app.web import lists
from app.web.shell import page, page_router
from model_store.repositories import TERMINAL_STATES, JobRepository
from worker.contract import Kind

router = page_router()
MOST_POINTS = 200  # of a curve


@router.get("/app/jobs")
def show_jobs(
    request: Request,
    services: Services_,
    identity: Anyone,
    kind: Annotated[Kind | None, Query()] = None,
    state: Annotated[State | None, Query()] = None,
    cursor: Cursor = None,
) -> Response:
    jobs = lists.jobs(services, identity, 25, cursor, kind, state)
    return page(request, "jobs.html", identity, {"active": "jobs", "jobs": jobs, "kind": kind, "state": state})


@router.get("/app/jobs/{job_id}")
def show_job(request: Request, job_id: str, services: Services_, identity: Anyone) -> Response:
    return page(request, "job.html", identity, {"active": "jobs", **_shown(services, identity, job_id)})


@router.get("/app/jobs/{job_id}/progress")
def show_progress(request: Request, job_id: str, services: Services_, identity: Anyone) -> Response:
    """A piece of the page, asked for again until the job has ended."""
    return page(request, "progress.html", identity, _shown(services, identity, job_id))


def _shown(services: Services, identity: Identity, job_id: str) -> dict[str, object]:
    job = get_job(job_id, services, identity)
    may_act = identity.may(SCOPE_OF[job.kind])
    return {
        "job": job,
        "ended": job.state in TERMINAL_STATES,
        "may_cancel": may_act and job.state in ("queued", "running"),
        "may_retry": may_act and (job.state == "failed" or (job.state == "cancelled" and job.kind == "generate")),
        "log": get_job_log(job_id, services, identity),
        "picture": curve(_losses(services, identity, job)) if job.kind == "train" else None,
    }


def _losses(services: Services, identity: Identity, job: JobAnswer) -> list[tuple[float, float, float]]:
    """(batch, training loss, held-out loss) of each event that tells both; custodians' alone."""
    if not identity.is_custodian:
        return []
    with services.database.read_scope() as session:
        events = JobRepository(session).progress(identity.owner, job.id, MOST_POINTS)
    told = [event_data(identity, job.kind, event) for event in events]
    found = []
    for each in told:
        batches = next((step["value"] for step in each.get("steps", []) if step["name"] == "train"), None)
        if batches and each.get("loss") is not None and each.get("held_out") is not None:
            found.append((batches, each["loss"], each["held_out"]))
    return found
