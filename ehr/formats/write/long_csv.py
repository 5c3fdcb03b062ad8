"""long.csv: a row per code, with the columns record_id, vocabulary and code. The format `long` reads it."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ehr.formats.spreadsheet import defused
from ehr.formats.write.arrow_rows import row_batches
from ehr.formats.write.csv_tables import joined
from ehr.formats.write.protocol import CohortSource, Writer

HEADER = b"record_id,vocabulary,code\r\n"


def write_long_csv(cohort: CohortSource) -> Iterator[bytes]:
    """Each code's cells are made once; a row is its record's number and the ready cells."""
    yield HEADER
    cells = pa.array([_cells(code) for code in cohort.vocabulary], pa.string())
    for batch in row_batches(cohort):
        numbers = pc.cast(batch.column("record_id"), pa.string())
        own = cells.take(batch.column("code").indices)
        yield joined(pc.binary_join_element_wise(numbers, own, pa.scalar("", pa.string())))


def _cells(code: str) -> str:
    vocabulary, colon, rest = code.partition(":")
    return f",{defused(vocabulary)},{defused(rest)}\r\n" if colon else f",,{defused(code)}\r\n"


LONG_CSV = Writer("long.csv", "text/csv; charset=utf-8", "csv", write_long_csv, "records without codes")
