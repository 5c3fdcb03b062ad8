"""Jobs: look, follow, cancel, try again."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from app.access import Anyone, Identity, Services_
from app.events import LARGEST_EVENT, event_stream, finished_before
from app.paging import Cursor, Limit
from app.schemas.answers import JobAnswer, PageAnswer
from app.services import Services
from app.submissions import SCOPE_OF, Deed, IdempotencyKey, accepted, audit, once
from model_store.repositories import JobRepository
from model_store.tables import Job
from worker.contract import Kind, route_of

router = APIRouter(tags=["jobs"])
State = Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"]
EventId = Annotated[int, Query(ge=0, le=LARGEST_EVENT, description="replay what came after this event")]
LastEventId = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=LARGEST_EVENT)]


@router.get("/jobs")
def list_jobs(
    services: Services_,
    identity: Anyone,
    kind: Kind | None = None,
    state: State | None = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> PageAnswer[JobAnswer]:
    """List jobs, newest first."""
    with services.database.read_scope() as session:
        page = JobRepository(session).page(identity.owner, cursor, limit, kind, state)
        return PageAnswer(items=[JobAnswer.of(row) for row in page.rows], next_cursor=page.next_cursor)


@router.get("/jobs/{job_id}")
def get_job(job_id: str, services: Services_, identity: Anyone) -> JobAnswer:
    """Show a job: its state, steps with value and maximum, remaining time, and its result or error."""
    with services.database.read_scope() as session:
        return JobAnswer.of(JobRepository(session).get(identity.owner, job_id))


@router.post("/jobs/{job_id}/cancel", status_code=202)
def cancel_job(
    job_id: str, response: Response, services: Services_, identity: Anyone, key: IdempotencyKey = None
) -> JobAnswer:
    """Cancel a job. A queued one never runs; a running one stops within seconds.

    It leaves nothing behind, except that a cohort keeps its finished parts for seven days: see `POST /jobs/{id}/retry`.
    """

    def do(session: Session) -> Job:
        jobs = JobRepository(session)
        identity.require(SCOPE_OF[jobs.get(identity.owner, job_id).kind])
        job = jobs.request_cancel(identity.owner, job_id)
        audit(session, identity, "cancel", job_id)
        return job

    return accepted(response, *once(services, _deed(identity, "cancel", job_id, key), do))


@router.post("/jobs/{job_id}/retry", status_code=202)
def retry_job(
    job_id: str, response: Response, services: Services_, identity: Anyone, key: IdempotencyKey = None
) -> JobAnswer:
    """Try a failed job again, or a cancelled cohort.

    Training goes on from its checkpoint; a cohort keeps its finished parts and only the rest is made.
    """

    def do(session: Session) -> Job:
        jobs = JobRepository(session)
        job = jobs.get(identity.owner, job_id)
        identity.require(SCOPE_OF[job.kind])
        job = jobs.retry(identity.owner, job_id, *route_of(job.kind), services.settings.max_attempts)
        audit(session, identity, "retry", job_id)
        return job

    return accepted(response, *once(services, _deed(identity, "retry", job_id, key), do))


@router.get(
    "/jobs/{job_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "events until the job has ended"},
        204: {"description": "the job has ended and every event was seen: do not connect again"},
    },
)
def follow_job(
    job_id: str,
    services: Services_,
    identity: Anyone,
    after: EventId = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Follow a job by server-sent events: `state` and `progress`, from the beginning or from Last-Event-ID on."""
    seen = after if last_event_id is None else last_event_id
    if _nothing_left(services, identity, job_id, seen):
        return Response(status_code=204)
    return StreamingResponse(
        event_stream(services, identity.owner, job_id, seen),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


def _nothing_left(services: Services, identity: Identity, job_id: str, seen: int) -> bool:
    with services.database.read_scope() as session:
        return finished_before(JobRepository(session), identity.owner, job_id, seen)


def _deed(identity: Identity, verb: str, job_id: str, key: str | None) -> Deed:
    return Deed(identity, f"POST /jobs/{{id}}/{verb}", key, {"job_id": job_id})
