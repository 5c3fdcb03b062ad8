"""NDJSON a line at a time: objects with their line numbers; what is no object is counted."""

import json
from collections.abc import Iterator
from typing import Any

from ehr.errors import DataError, TooLargeError
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile

BLOCK = 1 << 20
LONGEST_LINE = 64 << 20  # also the largest Bundle
LINES_AT_A_TIME = 1 << 14
DISTINCTIVE = ("resourceType", "record_id", "code", "codes")

Numbered = list[tuple[int, dict[str, Any]]]


def read_objects(file: SourceFile, rejects: Rejects) -> Iterator[Numbered]:
    """JSON objects with their lines, some at a time. A file that is one document (spread over lines) is one object."""
    if is_one_document(file):
        yield [(1, whole_document(file))]
        return
    some: Numbered = []
    for number, line in enumerate(_lines(file), start=1):
        if number > file.limits.rows:
            raise TooLargeError(f"the file has more than {file.limits.rows:,} rows")
        if (found := _object(line)) is not None:
            some.append((number, found))
        elif line.strip():
            rejects.add("not-a-json-object", [number], file.label)
        if len(some) >= LINES_AT_A_TIME:
            yield some
            some = []
    yield some


def first_object(file: SourceFile) -> dict[str, Any]:
    """The first line's object, or as much as can be told of a document; empty if there is none."""
    if (found := _object(file.head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0])) is not None:
        return found
    # a long first line, or a document over many: the names that are there tell enough
    there = [name for name in DISTINCTIVE if f'"{name}"'.encode() in file.head]
    return {"resourceType": "Bundle"} if "resourceType" in there else dict.fromkeys(there)


def is_one_document(file: SourceFile) -> bool:
    """Whether the first line alone is no JSON: then the whole file should be."""
    first = file.head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].strip()
    return first in (b"{", b"[") or (b"\n" in file.head and len(first) < len(file.head) and _object(first) is None)


def whole_document(file: SourceFile) -> dict[str, Any]:
    """A document of bounded size; a list of resources becomes a Bundle of them."""
    data = file.whole(LONGEST_LINE, f"a JSON document has at most {LONGEST_LINE:,} bytes; send NDJSON")
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise DataError("the file is not readable JSON") from None
    if isinstance(found, list):
        return {"resourceType": "Bundle", "entry": [{"resource": resource} for resource in found]}
    return found if isinstance(found, dict) else {}


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # also bytes that are not UTF-8, and nesting made to exhaust
        return None
    return found if isinstance(found, dict) else None


def _lines(file: SourceFile) -> Iterator[bytes]:
    rest = b""
    with file.inflated() as stream:
        while block := stream.read(BLOCK):
            *whole, rest = (rest + block).split(b"\n")
            yield from whole
            if len(rest) > LONGEST_LINE:
                raise TooLargeError(f"a line has at most {LONGEST_LINE:,} bytes")
    if rest:
        yield rest.removeprefix(b"\xef\xbb\xbf")
