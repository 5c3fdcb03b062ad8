"""Query parameters of lists."""

from typing import Annotated

from fastapi import Query

Cursor = Annotated[str | None, Query(max_length=300, description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(ge=1, le=500, description="most items on a page")]
