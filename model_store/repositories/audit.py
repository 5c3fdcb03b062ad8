"""The audit trail: who did what, and what was refused."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, or_, select

from ehr.errors import RequestError
from model_store.repositories.base import Page, Repository
from model_store.tables import Audit

NOBODY = ""  # the owner of what was refused to someone without a valid key
LARGEST_ID = 2**63 - 1


@dataclass(frozen=True)
class Wanted:
    """Which rows; None: any."""

    action: str | None = None
    key_prefix: str | None = None
    target: str | None = None
    since: float | None = None  # seconds since 1970
    until: float | None = None  # before this moment


class AuditRepository(Repository):
    def record(
        self, owner: str, action: str, target: str, key_prefix: str | None = None, detail: dict[str, Any] | None = None
    ) -> None:
        """Note a submission, a download, a deletion or a refusal. `detail` must not contain codes or record ids."""
        values = {"owner": owner, "action": action, "target": target, "key_prefix": key_prefix, "detail": detail or {}}
        self.session.execute(insert(Audit).values(**values))

    def newest(self, owner: str, limit: int = 100) -> list[Audit]:
        query = select(Audit).where(Audit.owner == owner).order_by(Audit.id.desc()).limit(limit)
        return list(self.session.scalars(query))

    def page(self, owner: str, wanted: Wanted, cursor: str | None, limit: int) -> Page[Audit]:
        """The owner's rows, and those of nobody, newest first. Ids grow with time: a cursor is the last id."""
        query = select(Audit).where(or_(Audit.owner == owner, Audit.owner == NOBODY))
        for name in ("action", "key_prefix", "target"):
            if (value := getattr(wanted, name)) is not None:
                query = query.where(getattr(Audit, name) == value)
        if wanted.since is not None:
            query = query.where(Audit.created_at >= wanted.since)
        if wanted.until is not None:
            query = query.where(Audit.created_at < wanted.until)
        if cursor is not None:
            query = query.where(Audit.id < _id(cursor))
        rows = list(self.session.scalars(query.order_by(Audit.id.desc()).limit(limit + 1)))
        return Page(rows[:limit], str(rows[limit - 1].id) if len(rows) > limit else None)


def _id(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > 19 or int(cursor) > LARGEST_ID:
        raise RequestError("the cursor is not one this service gave out")
    return int(cursor)
