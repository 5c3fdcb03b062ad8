"""What repositories have in common: a session, and lists by opaque cursor."""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from ehr.errors import NotFoundError, RequestError
from model_store.ids import checked_id
from model_store.tables import Base

Row = TypeVar("Row")


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

    def _one(self, query: Select[Any], what: str) -> Any:
        """The row, or NotFoundError."""
        row = self.session.scalar(query)
        if row is None:
            raise NotFoundError(f"there is no {what} with this id")
        return row

    def _page(
        self,
        query: Select[Any],  # of one table's rows; SQLAlchemy 2.0 and 2.1 spell the type differently
        created_at: InstrumentedAttribute[float],
        row_id: InstrumentedAttribute[str],
        cursor: str | None,
        limit: int,
    ) -> Page[Any]:
        """`limit` rows of `query` after `cursor`, newest first. A page costs the same however far down it is."""
        if cursor is not None:
            query = query.where(tuple_(created_at, row_id) < _decode(cursor))
        rows = list(self.session.scalars(query.order_by(created_at.desc(), row_id.desc()).limit(limit + 1)))
        if len(rows) <= limit:
            return Page(rows, None)
        last = rows[limit - 1]
        return Page(rows[:limit], _encode(getattr(last, created_at.key), getattr(last, row_id.key)))


def _encode(created_at: float, row_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([created_at, row_id]).encode()).decode()


def _decode(cursor: str) -> tuple[Any, ...]:
    try:
        created_at, row_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        return float(created_at), checked_id(str(row_id))  # any other text might be one the database cannot take
    except (ValueError, TypeError, OverflowError, RecursionError, NotFoundError, binascii.Error, UnicodeError):
        raise RequestError("the cursor is not one this service gave out") from None
