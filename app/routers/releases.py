"""Letting a withheld cohort go."""

from fastapi import APIRouter

from app.access import DataOwner, Services_
from app.schemas.access import ReleaseAnswer
from app.schemas.requests import ReleaseRequest
from app.submissions import audit
from ehr.errors import RequestError
from model_store.repositories import CohortRepository, WithholdingRepository

router = APIRouter(tags=["cohorts"])


@router.post("/cohorts/{job_id}/release")
def release_cohort(
    job_id: str, services: Services_, identity: DataOwner, body: ReleaseRequest | None = None
) -> ReleaseAnswer:
    """Release a cohort that is withheld. Needs the scope `data`, and is audited with the reason.

    Whoever holds the real records may say that a cohort gives none of them away. A report that fails later withholds it
    again.
    """
    with services.database.session_scope() as session:
        CohortRepository(session).get(identity.owner, job_id)
        if body is None:
            raise RequestError("reason: say why the cohort may leave; it is kept in the audit trail")
        row = WithholdingRepository(session).release(identity.owner, job_id, body.reason, identity.key_prefix)
        audit(session, identity, "release cohort", job_id, reason=body.reason)
        return ReleaseAnswer.of(row, cohort_id=job_id, released_at=row.created_at)
