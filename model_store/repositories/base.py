"""What repositories have in common: a session, and rows of owners with lists of them by opaque cursor."""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from ehr.errors import NotFoundError, RequestError
from model_store.columns import Base
from model_store.ids import checked_id

Row = TypeVar("Row", bound=Base)
PLAIN = re.compile(r"[^\0\ud800-\udfff]*\Z")  # what a database takes for text


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Rows and the cursor of what follows them, None at the end."""

    rows: list[Row]
    next_cursor: str | None


@dataclass(frozen=True)
class Selection:
    """Which rows of a list, and in which order: newest first, and all of them, unless it says otherwise."""

    id_begins: str | None = None
    named: str | None = None  # what the name contains, in capitals or not
    tag: str | None = None  # of models
    column: Literal["created_at", "name"] = "created_at"
    descending: bool = True


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
        self,
        owner: str,
        cursor: str | None = None,
        limit: int = 50,
        wanted: Selection | None = None,
        **only: str | Sequence[str] | None,
    ) -> Page[Row]:
        """`limit` rows after `cursor`, in the order that is wanted, that have the values in `only`, or one of several
        (None: any). A page costs the same however far down it is."""
        wanted, row_id = wanted or Selection(), getattr(self.table, self.id_column)
        query = select(self.table).filter_by(owner=owner)
        for name, value in only.items():
            if value is not None:
                query = query.where(getattr(self.table, name).in_([value] if isinstance(value, str) else value))
        if wanted.id_begins is not None:
            query = query.where(row_id.startswith(wanted.id_begins, autoescape=True))
        if wanted.named is not None:
            query = query.where(self.table.name.icontains(wanted.named, autoescape=True))
        if wanted.tag is not None:
            query = query.where(_has_tag(self.session, self.table.details, wanted.tag))
        first = getattr(self.table, wanted.column)
        if cursor is not None:
            place, after = tuple_(first, row_id), _decode(cursor, str if wanted.column == "name" else float)
            query = query.where(place < after if wanted.descending else place > after)
        order = [each.desc() if wanted.descending else each.asc() for each in (first, row_id)]
        rows = list(self.session.scalars(query.order_by(*order).limit(limit + 1)))
        if len(rows) <= limit:
            return Page(rows, None)
        last = rows[limit - 1]
        return Page(rows[:limit], _encode(getattr(last, wanted.column), getattr(last, self.id_column)))


def _has_tag(session: Session, details: Any, tag: str) -> Any:
    """Whether the list `tags` of a JSON column has one."""
    if session.get_bind().dialect.name == "postgresql":
        each = func.json_array_elements_text(details["tags"]).table_valued("value").render_derived()
    else:
        each = func.json_each(details, "$.tags").table_valued("value")
    return select(1).select_from(each).where(each.c.value == tag).exists()


def _encode(first: float | str, row_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([first, row_id]).encode()).decode()


def _decode(cursor: str, kind: type[float] | type[str]) -> tuple[Any, ...]:
    try:
        first, row_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        if not isinstance(first, kind) or (isinstance(first, str) and not PLAIN.match(first)):
            raise ValueError("of a list in another order, or made up")
        return first, checked_id(str(row_id))  # any other text might be one the database cannot take
    except (ValueError, TypeError, OverflowError, RecursionError, NotFoundError, binascii.Error, UnicodeError):
        raise RequestError("the cursor is not one this service gave out") from None
