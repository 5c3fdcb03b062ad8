"""The audit trail, the keys whose deeds it tells, and what their owner may have at a time."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from app.access import Admin, Anyone, Services_
from app.library import Cursor, Limit
from app.readers import kinds_for
from app.schemas.access import AuditAnswer, Budget, BudgetsAnswer, KeyAnswer
from app.schemas.answers import PageAnswer
from model_store.repositories import AuditRepository, KeyRepository, OwnerRepository
from model_store.repositories.audit import Wanted

router = APIRouter(tags=["service"])


Action = Annotated[str | None, Query(max_length=40, description="such as `submit generate`, `estimate` or `denied`")]
Key = Annotated[str | None, Query(max_length=16, description="prefix of a key")]
Target = Annotated[str | None, Query(max_length=80, description="id of what was acted on, or a route that was refused")]
Since = Annotated[datetime | None, Query(description="from this moment on; UTC if it names no zone")]
Until = Annotated[datetime | None, Query(description="before this moment")]


@router.get("/audit")
def list_audit(
    services: Services_,
    identity: Admin,
    action: Action = None,
    key: Key = None,
    target: Target = None,
    since: Since = None,
    until: Until = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> PageAnswer[AuditAnswer]:
    """List what was done and refused, newest first. Needs the scope `admin`.

    Conditions are hashes, the same for the same condition; no codes are in here. Refusals (`401`, `403`, `404`, `429`)
    are counted by the minute: `times` in `detail`.
    """
    services.denials.flush()
    wanted = Wanted(action, key, target, _seconds(since), _seconds(until))
    with services.database.read_scope() as session:
        page = AuditRepository(session).page(identity.owner, wanted, cursor, limit)
    return PageAnswer(items=[AuditAnswer.of(row) for row in page.rows], next_cursor=page.next_cursor)


@router.get("/keys")
def list_keys(services: Services_, identity: Admin) -> list[KeyAnswer]:
    """List the owner's keys by their prefixes, revoked ones too. Needs the scope `admin`.

    Keys are made and revoked by `ehr-d3pm keys`, where the database is.
    """
    with services.database.read_scope() as session:
        return [KeyAnswer.of(key) for key in KeyRepository(session).all() if key.owner == identity.owner]


def _seconds(moment: datetime | None) -> float | None:
    if moment is None:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


@router.get("/budgets")
def get_budgets(services: Services_, identity: Anyone) -> BudgetsAnswer:
    """Show how much of what is limited the owner of the key has at the moment, and may have: jobs that wait, synthetic
    records of jobs that wait or run, and bytes that are stored. Without the scope `data`: jobs of the kinds that
    `GET /jobs` shows, and bytes of cohorts."""
    with services.database.read_scope() as session:
        limits, alone = services.settings.limits, not identity.is_custodian
        kinds = kinds_for(identity, None)
        found = OwnerRepository(session).budgets(identity.owner, limits, cohorts_alone=alone, kinds=kinds)
    return BudgetsAnswer.model_validate({name: Budget(used=used, most=most) for name, (used, most) in found.items()})
