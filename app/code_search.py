"""Pages of codes, found by what they mean or by how they begin."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query

from app.schemas.answers import Item, PageAnswer
from ehr.errors import RequestError
from ehr.vocabulary import Vocabulary

CodeSearchText = Annotated[
    str | None,
    Query(
        max_length=200,
        description="words of what a code means, in any order and with small typos, or the beginning of a code; the"
        " best come first, and without words all codes come in their own order",
        examples=["diabetes", "heart failure", "E11"],
    ),
]


def found_codes(
    vocabulary: Vocabulary,
    search: str | None,
    cursor: str | None,
    limit: int,
    answer: Callable[[int, dict[str, Any]], Item],
) -> PageAnswer[Item]:
    """A page of codes; `answer` makes an item of a code's position and what it is called."""
    found = vocabulary.index.search(search) if search else range(len(vocabulary))
    first = _position(cursor)
    codes = ((i, vocabulary.codes[i]) for i in found[first : first + limit])
    items = [answer(i, {"code": code, "description": vocabulary.name_of(code)}) for i, code in codes]
    end = first + limit
    return PageAnswer(items=items, next_cursor=str(end) if end < len(found) else None)


def _position(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 9:
        raise RequestError("the cursor is not one this service gave out")
    return int(cursor)
