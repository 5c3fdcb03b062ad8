"""The files that pages load: a style and a script, both ours, kept in memory and sent compressed."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated

from fastapi import APIRouter, Header, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)
TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
# file -> what it is made of, in this order; the report page has the first style alone, inside of it
FILES = {
    "app.css": ("templates/style.css", "static/app.css"),
    "app.js": ("static/app.js", "static/upload.js", "static/builder.js", "static/reference.js"),
    "icon.svg": ("static/icon.svg",),
}


@dataclass(frozen=True)
class Asset:
    """A file as it is sent, plain and compressed."""

    plain: bytes
    compressed: bytes
    media_type: str
    digest: str


@cache
def asset(name: str) -> Asset:
    folder = resources.files("app.pages")
    plain = "\n".join((folder / part).read_text(encoding="utf-8") for part in FILES[name]).encode()
    digest = hashlib.sha256(plain).hexdigest()[:16]
    return Asset(plain, gzip.compress(plain, mtime=0), TYPES[name.rsplit(".", 1)[-1]], digest)


def address_of(name: str) -> str:
    """Where a page finds the file: another address for other contents, so browsers may keep it for good."""
    return f"/static/{name}?{asset(name).digest}"


@router.get("/static/{name}")
async def get_asset(name: str, accept_encoding: Annotated[str, Header()] = "") -> Response:
    if name not in FILES:
        raise HTTPException(404, "there is no such file")
    found = asset(name)
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" not in accept_encoding:
        return Response(found.plain, media_type=found.media_type, headers=headers)
    return Response(found.compressed, media_type=found.media_type, headers=headers | {"Content-Encoding": "gzip"})
