"""What repositories have in common: a session, and rows of owners with lists of them by opaque cursor."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from ehr.errors import NotFoundError, RequestError
from model_store.columns import Base
from model_store.ids import checked_id

Row = TypeVar("Row", bound=Base)


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Rows and the cursor of what follows them, None at the end."""

    rows: list[Row]
    next_cursor: str | None


class Repository:
    """Works in a session that someone else commits."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def _insert(self, row: Base) -> None:
        self.session.add(row)
        self.session.flush()


class OwnedRepository(Repository, Generic[Row]):
    """Rows of one table that belong to someone."""

    table: ClassVar[Any]
    id_column: ClassVar[str]
    id_kind: ClassVar[str]  # of model_store.ids

    def add(self, row: Row) -> None:
        self._insert(row)

    def get(self, owner: str, row_id: str) -> Row:
        """The owner's row, or NotFoundError."""
        mine = {"owner": owner, self.id_column: checked_id(row_id, self.id_kind)}
        row: Row | None = self.session.scalar(select(self.table).filter_by(**mine))
        if row is None:
            raise NotFoundError(f"there is no {self.table.__tablename__.removesuffix('s')} with this id")
        return row

    def page(
        self, owner: str, cursor: str | None = None, limit: int = 50, **only: str | Sequence[str] | None
    ) -> Page[Row]:
        """`limit` rows after `cursor`, newest first, that have the values in `only`, or one of several (None: any). A
        page costs the same however far down it is."""
        query = select(self.table).filter_by(owner=owner)
        for name, value in only.items():
            if value is not None:
                query = query.where(getattr(self.table, name).in_([value] if isinstance(value, str) else value))
        created_at, row_id = self.table.created_at, getattr(self.table, self.id_column)
        if cursor is not None:
            query = query.where(tuple_(created_at, row_id) < _decode(cursor))
        rows = list(self.session.scalars(query.order_by(created_at.desc(), row_id.desc()).limit(limit + 1)))
        if len(rows) <= limit:
            return Page(rows, None)
        last = rows[limit - 1]
        return Page(rows[:limit], _encode(last.created_at, getattr(last, self.id_column)))


def _encode(created_at: float, row_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([created_at, row_id]).encode()).decode()


def _decode(cursor: str) -> tuple[Any, ...]:
    try:
        created_at, row_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        return float(created_at), checked_id(str(row_id))  # any other text might be one the database cannot take
    except (ValueError, TypeError, OverflowError, RecursionError, NotFoundError, binascii.Error, UnicodeError):
        raise RequestError("the cursor is not one this service gave out") from None
