"""Stored bytes as an answer: with their length, their hash as ETag, HEAD and Range (RFC 9110), so that readers of
Parquet and Arrow take what they need straight from the address."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from app.access import Identity
from app.services import Services

BLOCK = 1 << 20
BINARY = {"schema": {"type": "string", "format": "binary"}}  # of an OpenAPI document
ANY_BYTES = {"application/octet-stream": BINARY}  # for makers of clients that know no other kind of bytes
RANGES: dict[int | str, dict[str, Any]] = {
    206: {"description": "the range that was asked for", "content": ANY_BYTES},
    304: {"description": "it is what `If-None-Match` names"},
}
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\Z")


@dataclass(frozen=True)
class StoredBytes:
    """What lies in the store, verified: `opened` gives a seekable file of `size` bytes with this hash."""

    opened: Callable[[], AbstractContextManager[BinaryIO]]
    size: int
    sha256: str
    media_type: str
    filename: str


def is_download(request: Request, services: Services, identity: Identity, by_ranges: bool, *what: str) -> bool:
    """Whether a request is to be noted as a download of `what`: not one that only looks how long it is, and of those
    that read here and there the first within some minutes."""
    if request.method == "HEAD":
        return False
    is_part = by_ranges and "range" in request.headers
    return not is_part or services.recent_reads.is_new(identity.owner, identity.holder, *what)


def ranged_response(request: Request, stored: StoredBytes) -> Response:
    """All of it or the range that was asked for; of several ranges all of it, as RFC 9110 allows."""
    etag = f'"{stored.sha256}"'
    headers = {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f'attachment; filename="{stored.filename}"',
        "ETag": etag,
    }
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    first, end, status = 0, stored.size, 200
    if request.headers.get("if-range", etag) == etag and (asked := _asked(request, stored.size)) is not None:
        first, end = asked
        status = 206
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{stored.size}"
    headers["Content-Length"] = str(end - first)
    if request.method == "HEAD":
        return Response(None, status, headers, stored.media_type)
    return StreamingResponse(_blocks(stored, first, end), status, headers, stored.media_type)


def _asked(request: Request, size: int) -> tuple[int, int] | None:
    """(first, end) of the range; None if there is none that is understood. 416 if nothing lies in it."""
    match = _RANGE.match(request.headers.get("range", ""))
    if match is None or match.groups() == ("", ""):
        return None
    begin, last = match.groups()
    if begin == "":  # the last so many
        first, end = max(size - int(last), 0), size
    else:
        first, end = int(begin), size if last == "" else min(int(last) + 1, size)
    if first >= end:
        raise HTTPException(416, f"there are {size:,} bytes", {"Content-Range": f"bytes */{size}"})
    return first, end


def _blocks(stored: StoredBytes, first: int, end: int) -> Iterator[bytes]:
    with stored.opened() as file:
        file.seek(first)
        while first < end and (block := file.read(min(BLOCK, end - first))):
            first += len(block)
            yield block
