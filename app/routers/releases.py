"""Cohorts that are withheld, and letting them go."""

from fastapi import APIRouter

from app.access import DataOwner, Reader, Services_
from app.library import Limit
from app.problems import as_told, detail_of
from app.schemas.access import ReleaseAnswer, WithheldAnswer
from app.schemas.requests import ReleaseRequest
from app.submissions import audit
from ehr.errors import ConflictError, RequestError
from model_store.repositories import CohortRepository, WithholdingRepository

router = APIRouter(tags=["cohorts"])


@router.get("/withheld")
def list_withheld(services: Services_, identity: Reader, limit: Limit = 50) -> list[WithheldAnswer]:
    """List those of the newest `limit` cohorts that may not leave, and why, as far as the key may know."""
    found = []
    with services.database.read_scope() as session:
        withholding = WithholdingRepository(session)
        for row in CohortRepository(session).page(identity.owner, None, limit).rows:
            try:
                withholding.check(identity.owner, row.job_id)
            except ConflictError as error:
                why = detail_of(as_told(error, identity.is_custodian))
                found.append(WithheldAnswer.of(row, cohort_id=row.job_id, why=why))
    return found


@router.get("/releases")
def list_releases(services: Services_, identity: DataOwner, limit: Limit = 50) -> list[ReleaseAnswer]:
    """List cohorts that were released, newest first, with the reasons that were given."""
    with services.database.read_scope() as session:
        rows = WithholdingRepository(session).releases(identity.owner, limit)
        return [ReleaseAnswer.of(row, cohort_id=row.cohort_job_id, released_at=row.created_at) for row in rows]


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
