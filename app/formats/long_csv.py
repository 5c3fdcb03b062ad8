"""long.csv: `record_id,vocabulary,code`, a row per code, as in an upload. Records without codes have no row.

Cells that a spreadsheet would take for a formula are defused by a leading apostrophe.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from app.formats.protocol import Format
from model_store.blobs import BlobStore
from model_store.cohorts import iter_tables

HEADER = b"record_id,vocabulary,code\r\n"
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
NEEDS_QUOTES = frozenset(',"\r\n')


def write_long_csv(store: BlobStore, manifest: dict[str, Any]) -> Iterator[bytes]:
    """Each code's cells are made once; a row is its record's number and the ready cells."""
    yield HEADER
    for batch in iter_tables(store, manifest):
        code = batch.column("code")
        cells = pa.array([_cells(text) for text in code.dictionary.to_pylist()], pa.string())
        numbers = pc.cast(batch.column("record_id"), pa.string())
        rows = pc.binary_join_element_wise(numbers, cells.take(code.indices), pa.scalar("", pa.string()))
        yield _text_of(rows)


def defused(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula, quoted where CSV needs it."""
    if cell.startswith(FORMULA_STARTS):
        cell = f"'{cell}"
    if NEEDS_QUOTES & set(cell):
        cell = '"' + cell.replace('"', '""') + '"'
    return cell


def _cells(code: str) -> str:
    vocabulary, colon, rest = code.partition(":")
    return f",{defused(vocabulary)},{defused(rest)}\r\n" if colon else f",,{defused(code)}\r\n"


def _text_of(rows: pa.StringArray) -> bytes:
    """The strings one after another: the array's own buffer, without a Python object per row."""
    if len(rows) == 0:
        return b""
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows), "")
    return joined[0].as_buffer().to_pybytes()  # type: ignore[no-any-return]


LONG_CSV = Format("long.csv", "text/csv; charset=utf-8", "csv", write_long_csv)
