"""Taking a job: whose turn it is, under a name that no other claim has."""

import os
import secrets
import socket

from sqlalchemy.orm import Session

from model_store.repositories import Claim, LeaseRepository, OutboxRepository, TurnRepository
from model_store.tables import Job
from runtime.settings import Settings


def new_worker_name() -> str:
    """Unique to one claim: the fence must tell two claims of one process apart."""
    return f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(8)}"


def claim_next(session: Session, settings: Settings, named: str | None = None) -> Claim | None:
    turns, queues = TurnRepository(session), settings.queues
    return turns.claim_next(queues, new_worker_name(), settings.lease_seconds, settings.limit_running_jobs, named)


def claim_named(session: Session, settings: Settings, job_id: str) -> Claim | None:
    """The job that is next; if none waits, the named one, whose worker may be gone. A message can be here before the
    row says that it was sent."""
    claim = claim_next(session, settings, job_id)
    if claim is None:
        named = session.get(Job, job_id)
        if named is None or named.state == "queued":  # its owner has as many running as they may
            return None
        return LeaseRepository(session).claim(job_id, new_worker_name(), settings.lease_seconds)
    named = session.get(Job, job_id)
    if named is not None and named.kind != claim.kind:
        # The message of the one that was claimed is in another queue, where it may find no worker that serves this one.
        OutboxRepository(session).hurry(job_id)
    return claim
