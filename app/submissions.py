"""From an accepted request to a queued job: one transaction for the job, its audit row and its Idempotency-Key."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Header, Query, Response
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.access import Identity
from app.exposure import caps_of
from app.readers import job_answer
from app.schemas.answers import JobAnswer
from app.services import Services
from ehr.errors import RequestError
from model_store.columns import Base
from model_store.ids import JOB, new_id
from model_store.repositories import (
    AuditRepository,
    CohortRepository,
    DatasetRepository,
    DiscardRepository,
    ExposureRepository,
    IdempotencyRepository,
    JobRepository,
    ModelRepository,
    OwnerRepository,
)
from model_store.repositories.exposure import Asked
from model_store.tables import Job
from runtime.traces import carried
from worker.contract import ROUTES, Payload

log = logging.getLogger(__name__)
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Sent again with the same request, it answers with the same job and does nothing twice.",
    ),
]
PriorityName = Literal["low", "normal", "high"]
NORMAL: PriorityName = "normal"
PRIORITIES: dict[PriorityName, int] = {"low": -1, NORMAL: 0, "high": 1}
Priority = Annotated[
    PriorityName,
    Query(description="which of your own jobs that wait goes first; others' have their turns all the same"),
]
REPLAYED_HEADER = "Idempotent-Replayed"
# the scope that submitting, cancelling or retrying a kind of job needs
SCOPE_OF = {"ingest": "data", "train": "train", "generate": "generate", "evaluate": "data", "export": "generate"}

AnyPayload = TypeVar("AnyPayload", bound=Payload)
Named = Mapping[type[DatasetRepository] | type[ModelRepository] | type[CohortRepository], str]


@dataclass(frozen=True)
class Submission:
    """What a POST asks for, as its Idempotency-Key sees it, and the id of the job it makes or changes."""

    identity: Identity
    route: str
    key: str | None
    request: Any  # plain JSON; the same request is the same JSON
    job_id: str = field(default_factory=lambda: new_id(JOB))
    priority: PriorityName = NORMAL

    @cached_property
    def request_hash(self) -> str:
        canonical = json.dumps(self.request, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def replayed_job(services: Services, submission: Submission) -> Job | None:
    """The job of a request that came before. To be answered before the request is validated: what it names may be gone
    by now."""
    owner = submission.identity.owner
    if submission.key is None:
        return None
    with services.database.read_scope() as session:
        keys = IdempotencyRepository(session)
        job_id = keys.find(owner, submission.route, submission.key, submission.request_hash)
        return None if job_id is None else JobRepository(session).get(owner, job_id)


def reserve_key(session: Session, submission: Submission) -> Job | None:
    """None: do what was asked in this same transaction. Otherwise the job of a request that was faster."""
    owner = submission.identity.owner
    if submission.key is None:
        return None
    keys = IdempotencyRepository(session)
    job_id = keys.reserve(owner, submission.route, submission.key, submission.request_hash, submission.job_id)
    return None if job_id is None else JobRepository(session).get(owner, job_id)


def submit(
    services: Services,
    submission: Submission,
    kind: str,
    payload: Payload,
    named: Named | None = None,
    uploads: Sequence[str] = (),
    rows: Sequence[Base] = (),
    exposes: Asked | None = None,
) -> tuple[Job, bool]:
    """Queue a job; or, if the request came before, that job and True.

    `named` are rows that the request needs: they may have been deleted while it was validated. `uploads` are folders
    that belong to the job from now on. `rows` are added with it. `exposes`: how much of which model; ExposureError if
    whoever asks may not have that much. QuotaError if their owner has as much under way as they may.
    """
    owner = submission.identity.owner
    with services.database.session_scope() as session:
        if (earlier := reserve_key(session, submission)) is not None:
            return earlier, True
        for repository, row_id in (named or {}).items():
            repository(session).get(owner, row_id)
        for folder in uploads:
            DiscardRepository(session).forget(folder)
        stored, attempts = payload.stored() | carried(), services.settings.max_attempts
        admit(session, services, owner, stored)
        priority = PRIORITIES[submission.priority]
        job = JobRepository(session).submit(
            owner, kind, *ROUTES[kind], stored, attempts, job_id=submission.job_id, priority=priority
        )
        if exposes is not None:
            caps = caps_of(services.settings, submission.identity)
            ExposureRepository(session).count(owner, submission.identity.holder, exposes, caps)
        session.add_all(rows)
        detail = {} if exposes is None else asdict(exposes)
        audit(session, submission.identity, f"submit {kind}", job.id, **detail)
    # the line that has both the request's id and the job's, by which the lines of workers are found
    log.info("job submitted", extra={"job_id": job.id, "kind": kind})
    services.sweeper.wake()
    return job, False


def admit(session: Session, services: Services, owner: str, payload: Mapping[str, Any]) -> None:
    """QuotaError if the owner may not have one more such job at the moment."""
    size = sum(int(file["size"]) for file in payload.get("files", ()))
    OwnerRepository(session).admit(owner, services.settings.limits, int(payload.get("n", 0)), size)


def accepted(identity: Identity, response: Response, job: Job, replayed: bool) -> JobAnswer:
    """202, where to look, and the job."""
    response.headers["Location"] = f"/jobs/{job.id}"
    if replayed:
        response.headers[REPLAYED_HEADER] = "true"
    return job_answer(identity, job)


def audit(session: Session, identity: Identity, action: str, target: str, **detail: Any) -> None:
    """Note who did what, in the transaction that does it."""
    AuditRepository(session).record(identity.owner, action, target, identity.key_prefix, detail)


def checked_payload(cls: type[AnyPayload], **values: Any) -> AnyPayload:
    """A payload; what it refuses is an error of the request."""
    if unknown := values.keys() - cls.model_fields.keys():
        raise TypeError(f"{cls.__name__} has no {sorted(unknown)}")  # it would pass over them
    try:
        return cls(**values)
    except ValidationError as error:
        raise RequestError(
            "; ".join(f"{'.'.join(map(str, e['loc'])) or 'request'}: {e['msg']}" for e in error.errors()[:5])
        ) from None
