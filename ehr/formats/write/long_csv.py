"""long.csv: a row per code, with the columns record_id, vocabulary and code (and before them patient_id and date of
visits, in histories), with value and unit if the cohort has labs
with numbers, and with name if wanted. The format `long` reads it."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ehr.formats.spreadsheet import defused
from ehr.formats.write.arrow_rows import row_batches
from ehr.formats.write.csv_tables import joined
from ehr.formats.write.lab_values import LabValues
from ehr.formats.write.protocol import CohortSource, Writer

HEADER, OVER_TIME = "record_id,vocabulary,code", "patient_id,date,"


def write_long_csv(cohort: CohortSource) -> Iterator[bytes]:
    """Each code's cells are made once; a row is its record's number and the ready cells, around the value."""
    labs = LabValues(cohort)
    yield (
        ("" if cohort.origin is None else OVER_TIME)
        + HEADER
        + (",value,unit" if labs else "")
        + (",name" if cohort.with_names else "")
        + "\r\n"
    ).encode()
    before = pa.array([_cells(name) + ("," if labs else "") for name in labs.names], pa.string())
    units = ["," + defused(unit.text) if labs else "" for unit in labs.units]
    names = ["," + defused(cohort.name_of(code) or "") if cohort.with_names else "" for code in labs.names]
    after = pa.array([f"{unit}{name}\r\n" for unit, name in zip(units, names, strict=True)], pa.string())
    for batch in row_batches(cohort, labs):
        numbers, code = pc.cast(batch.column("record_id"), pa.string()), batch.column("code").indices
        if cohort.origin is not None:
            time = (pc.cast(batch.column(name), pa.string()) for name in ("patient_id", "date"))
            numbers = pc.binary_join_element_wise(*time, numbers, ",")
        value = pc.fill_null(pc.cast(batch.column("value"), pa.string()), "") if labs else ""
        yield joined(pc.binary_join_element_wise(numbers, before.take(code), value, after.take(code), ""))


def _cells(code: str) -> str:
    """A code with nothing on one side of its colon is written whole: an empty cell would be no code."""
    vocabulary, _, rest = code.partition(":")
    return f",{defused(vocabulary)},{defused(rest)}" if vocabulary and rest else f",,{defused(code)}"


LONG_CSV = Writer("long.csv", "text/csv; charset=utf-8", "csv", write_long_csv, "records without codes")
