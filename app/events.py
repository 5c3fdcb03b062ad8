"""Server-sent events of a job, out of the events that the database keeps: any process can go on where another was."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread

from app.access import Identity
from app.readers import event_data
from app.services import Services
from model_store.repositories import TERMINAL_STATES, JobRepository
from model_store.tables import JobEvent

LARGEST_EVENT = 2**63 - 1
LOOK_SECONDS = 0.5
LONGEST_LOOK_SECONDS = 2.0
KEEP_ALIVE_SECONDS = 15.0


async def event_stream(services: Services, identity: Identity, kind: str, job_id: str, seen: int) -> AsyncIterator[str]:
    """Events after `seen` of a job of that kind, as they come; ends after the job's last."""
    look, last_sent, told = LOOK_SECONDS, time.monotonic(), None
    yield "retry: 2000\n\n"
    while True:
        events, progress = await anyio.to_thread.run_sync(_events_after, services, identity.owner, job_id, seen)
        if not events and progress is not None and progress != told:
            # how far the job is by its row, of which not every change is an event
            events = [JobEvent(id=seen, job_id=job_id, kind="progress", data=progress)]
        for event in events:
            yield formatted(event, event_data(identity, kind, event))
            seen, told = event.id, event.data if event.kind == "progress" else told
        if events and is_an_end(events[-1]):
            return  # an end with something after it was followed by a retry
        # looking costs a query: a job that tells nothing is looked at less often
        look = LOOK_SECONDS if events else min(1.5 * look, LONGEST_LOOK_SECONDS)
        if events:
            last_sent = time.monotonic()
        elif time.monotonic() - last_sent > KEEP_ALIVE_SECONDS:
            yield ": still here\n\n"
            last_sent = time.monotonic()
        await anyio.sleep(look)


def finished_before(jobs: JobRepository, owner: str, job_id: str, seen: int) -> bool:
    """Whether the job has ended and nothing happened after event `seen`."""
    job = jobs.get(owner, job_id)
    return job.state in TERMINAL_STATES and not jobs.events(owner, job_id, after=seen, limit=1)


def formatted(event: JobEvent, data: dict[str, Any]) -> str:
    return f"id: {event.id}\nevent: {event.kind}\ndata: {json.dumps(data)}\n\n"


def is_an_end(event: JobEvent) -> bool:
    return event.kind == "state" and event.data.get("state") in TERMINAL_STATES


def _events_after(
    services: Services, owner: str, job_id: str, seen: int
) -> tuple[list[JobEvent], dict[str, Any] | None]:
    """Events, and the progress of a job that runs."""
    with services.database.read_scope() as session:
        jobs = JobRepository(session)
        job, events = jobs.get(owner, job_id), jobs.events(owner, job_id, after=seen)
        return events, job.progress if job.state == "running" else None
