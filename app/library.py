"""Lists of what an owner has, and deletion from them."""

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import Query

from app.access import Identity
from app.schemas.answers import Item, PageAnswer
from app.services import Services
from app.submissions import audit
from model_store.repositories import CohortRepository, DatasetRepository, ModelRepository
from model_store.repositories.base import OwnedRepository, Row

Cursor = Annotated[str | None, Query(max_length=300, description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(ge=1, le=500, description="most items on a page")]


def listed(
    services: Services,
    repository: type[OwnedRepository[Row]],
    answer: Callable[[Row], Item],
    owner: str,
    cursor: str | None,
    limit: int,
    **only: str | Sequence[str] | None,
) -> PageAnswer[Item]:
    """A page of the owner's rows as answers, newest first."""
    with services.database.read_scope() as session:
        page = repository(session).page(owner, cursor, limit, **only)
        return PageAnswer(items=[answer(row) for row in page.rows], next_cursor=page.next_cursor)


def delete_row(
    services: Services,
    identity: Identity,
    repository: type[DatasetRepository | ModelRepository | CohortRepository],
    row_id: str,
) -> None:
    """Delete what the caller has, with its files."""
    with services.database.session_scope() as session:
        repository(session).delete(identity.owner, row_id)
        audit(session, identity, f"delete {repository.table.__tablename__.removesuffix('s')}", row_id)
    services.sweeper.wake()
