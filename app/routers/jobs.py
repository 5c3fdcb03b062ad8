"""Jobs: look, follow, cancel, try again."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from app.access import Anyone, Identity, Services_
from app.events import LARGEST_EVENT, event_stream, finished_before
from app.library import Cursor, Limit, Unnamed, listed
from app.readers import event_data, job_answer, kinds_for
from app.schemas.answers import JobAnswer, LogLine, PageAnswer, State
from app.services import Services
from app.submissions import SCOPE_OF, IdempotencyKey, Submission, accepted, admit, audit, reserve_key
from model_store.repositories import JobRepository
from model_store.tables import JobEvent
from worker.contract import ROUTES, Kind

router = APIRouter(tags=["jobs"])
MOST_LINES = 500  # of a log
EventId = Annotated[int, Query(ge=0, le=LARGEST_EVENT, description="replay what came after this event")]
LastEventId = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=LARGEST_EVENT)]


@router.get("/jobs")
def list_jobs(
    services: Services_,
    identity: Anyone,
    wanted: Unnamed,
    kind: Kind | None = None,
    state: State | None = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> PageAnswer[JobAnswer]:
    """List jobs."""
    kinds, shown = kinds_for(identity, kind), partial(job_answer, identity)
    return listed(services, JobRepository, shown, identity.owner, cursor, limit, wanted, kind=kinds, state=state)


@router.get("/jobs/{job_id}")
def get_job(job_id: str, services: Services_, identity: Anyone) -> JobAnswer:
    """Show a job: its state, steps with value and maximum, remaining time, and its result or error."""
    return job_answer(identity, services.row(JobRepository, identity.owner, job_id))


@router.get("/jobs/{job_id}/log")
def get_job_log(job_id: str, services: Services_, identity: Anyone) -> list[LogLine]:
    """What happened to a job and when, oldest first: the states it came into and the steps it began, attempt after
    attempt; the newest 500."""
    kind = get_job(job_id, services, identity).kind
    with services.database.read_scope() as session:
        events = JobRepository(session).log(identity.owner, job_id, MOST_LINES)
    return [_line(event, event_data(identity, kind, event)) for event in events]


@router.post("/jobs/{job_id}/cancel", status_code=202)
def cancel_job(
    job_id: str, response: Response, services: Services_, identity: Anyone, key: IdempotencyKey = None
) -> JobAnswer:
    """Cancel a job. A queued one never runs; a running one stops within seconds.

    It leaves nothing behind, except that a cohort keeps its finished parts for seven days: see `POST /jobs/{id}/retry`.
    """
    _authorise(services, identity, job_id)
    submission = Submission(identity, "POST /jobs/{id}/cancel", key, {"job_id": job_id}, job_id)
    with services.database.session_scope() as session:
        job = earlier = reserve_key(session, submission)
        if job is None:
            job = JobRepository(session).request_cancel(identity.owner, job_id)
            audit(session, identity, "cancel", job_id)
    services.sweeper.wake()
    return accepted(identity, response, job, replayed=earlier is not None)


@router.post("/jobs/{job_id}/retry", status_code=202)
def retry_job(
    job_id: str, response: Response, services: Services_, identity: Anyone, key: IdempotencyKey = None
) -> JobAnswer:
    """Try a failed job again, or a cancelled cohort.

    Training goes on from its checkpoint; a cohort keeps its finished parts and only the rest is made.
    """
    task, queue = ROUTES[_authorise(services, identity, job_id)]
    submission = Submission(identity, "POST /jobs/{id}/retry", key, {"job_id": job_id}, job_id)
    with services.database.session_scope() as session:
        job = earlier = reserve_key(session, submission)
        if job is None:
            attempts = services.settings.max_attempts
            admit(session, services, identity.owner, JobRepository(session).get(identity.owner, job_id).payload)
            job = JobRepository(session).retry(identity.owner, job_id, task, queue, attempts)
            audit(session, identity, "retry", job_id)
    services.sweeper.wake()
    return accepted(identity, response, job, replayed=earlier is not None)


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
    kind = job_answer(identity, services.row(JobRepository, identity.owner, job_id)).kind
    with services.database.read_scope() as session:
        nothing_left = finished_before(JobRepository(session), identity.owner, job_id, seen)
    if nothing_left:
        return Response(status_code=204)
    return StreamingResponse(
        event_stream(services, identity, kind, job_id, seen),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


def _line(event: JobEvent, told: dict[str, Any]) -> LogLine:
    return LogLine(at=event.created_at, **{name: told.get(name) for name in ("state", "step", "attempt", "error")})


def _authorise(services: Services, identity: Identity, job_id: str) -> str:
    """The job's kind, if the caller may submit such jobs."""
    kind = services.row(JobRepository, identity.owner, job_id).kind
    identity.require(SCOPE_OF[kind])
    return kind
