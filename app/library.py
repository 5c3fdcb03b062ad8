"""Lists of what an owner has, and deletion from them."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from fastapi import Depends, Query

from app.access import Identity
from app.schemas.answers import Item, PageAnswer
from app.services import Services
from app.submissions import audit
from ehr.fields import PlainText
from model_store.repositories import CohortRepository, DatasetRepository, ModelRepository
from model_store.repositories.base import OwnedRepository, Row, Selection

Cursor = Annotated[str | None, Query(max_length=300, description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(ge=1, le=500, description="most items on a page")]


IdBegins = Annotated[
    str | None,
    Query(
        pattern="^[a-z]{2,3}_[0-9a-f]{0,32}$",
        description="how the id begins, such as `job_3f2a`",
        examples=["job_3f2a", "mdl_0"],
    ),
]
Named = Annotated[PlainText | None, Query(min_length=1, max_length=200, description="what the name contains")]
ByAge = Annotated[Literal["-created_at", "created_at"], Query(description="newest first, or oldest first")]
ByAgeOrName = Annotated[
    Literal["-created_at", "created_at", "name", "-name"], Query(description="a minus sign turns the order round")
]
Tagged = Annotated[PlainText | None, Query(min_length=1, max_length=40, description="a tag it has")]
Of = Annotated[str | None, Query(max_length=64, description="id of what it was made from")]


async def by_age(id: IdBegins = None, sort: ByAge = "-created_at") -> Selection:
    return Selection(id, descending=sort.startswith("-"))


async def by_age_or_name(id: IdBegins = None, name: Named = None, sort: ByAgeOrName = "-created_at") -> Selection:
    column: Literal["created_at", "name"] = "name" if sort.endswith("name") else "created_at"
    return Selection(id, name, column=column, descending=sort.startswith("-"))


Unnamed = Annotated[Selection, Depends(by_age)]
MaybeNamed = Annotated[Selection, Depends(by_age_or_name)]


def listed(
    services: Services,
    repository: type[OwnedRepository[Row]],
    answer: Callable[[Row], Item],
    owner: str,
    cursor: str | None,
    limit: int,
    wanted: Selection,
    **only: str | Sequence[str] | None,
) -> PageAnswer[Item]:
    """A page of the owner's rows as answers."""
    with services.database.read_scope() as session:
        page = repository(session).page(owner, cursor, limit, wanted, **only)
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
