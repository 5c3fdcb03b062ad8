"""From an accepted request to a queued job: one transaction for the job, its audit row and its Idempotency-Key."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header, Response
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.access import Identity
from app.schemas.answers import JobAnswer
from app.services import Services
from ehr.errors import RequestError
from model_store.repositories import AuditRepository, IdempotencyRepository, JobRepository
from model_store.tables import Job
from worker.contract import Payload, route_of

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Sent again with the same request, it answers with the same job and does nothing twice.",
    ),
]
REPLAYED_HEADER = "Idempotent-Replayed"
# the scope that submitting, cancelling or retrying a kind of job needs
SCOPE_OF = {"ingest": "data", "train": "train", "generate": "generate", "evaluate": "generate"}


@dataclass(frozen=True)
class Deed:
    """What a POST is about to do, as its Idempotency-Key sees it."""

    identity: Identity
    route: str
    key: str | None
    request: Any  # plain JSON; the same deed is the same JSON

    @property
    def request_hash(self) -> str:
        canonical = json.dumps(self.request, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def once(services: Services, deed: Deed, do: Callable[[Session], Job]) -> tuple[Job, bool]:
    """Do it and return its job, or, if the key has come before, the job of that time and True."""
    owner = deed.identity.owner
    with services.database.session_scope() as session:
        if deed.key is not None:
            keys = IdempotencyRepository(session)
            earlier = keys.reserve(owner, deed.route, deed.key, deed.request_hash)
            if earlier is not None and earlier.job_id is not None:
                return JobRepository(session).get(owner, earlier.job_id), True
        job = do(session)
        if deed.key is not None:
            keys.remember(owner, deed.route, deed.key, job_id=job.id)
    services.sweeper.wake()
    return job, False


def submit(services: Services, deed: Deed, kind: str, payload_of: Callable[[Session], Payload]) -> tuple[Job, bool]:
    """Queue a job. `payload_of` checks, in the same transaction, that what the request names is there."""

    def do(session: Session) -> Job:
        task, queue = route_of(kind)
        payload = payload_of(session).stored()
        jobs = JobRepository(session)
        job = jobs.submit(deed.identity.owner, kind, task, queue, payload, services.settings.max_attempts)
        audit(session, deed.identity, f"submit {kind}", job.id)
        return job

    return once(services, deed, do)


def accepted(response: Response, job: Job, replayed: bool) -> JobAnswer:
    """202, where to look, and the job."""
    response.headers["Location"] = f"/jobs/{job.id}"
    if replayed:
        response.headers[REPLAYED_HEADER] = "true"
    return JobAnswer.of(job)


def audit(session: Session, identity: Identity, action: str, target: str, **detail: Any) -> None:
    """Note who did what, in the transaction of the deed."""
    AuditRepository(session).record(identity.owner, action, target, identity.key_prefix, detail)


def payload(cls: type[Payload], **values: Any) -> Payload:
    """A payload; what it refuses is an error of the request."""
    try:
        return cls(**values)
    except ValidationError as error:
        raise RequestError(
            "; ".join(f"{'.'.join(map(str, e['loc'])) or 'request'}: {e['msg']}" for e in error.errors()[:5])
        ) from None
