"""meds.parquet: a shard of the Medical Event Data Standard 0.4. A record is a subject; codes are SYSTEM//CODE.

Units of labs stand in a column of their own, which the standard allows and does not name, and so do names if they are
wanted: as `description`, which is what the metadata of MEDS calls them.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ehr.codes.systems import AGE, SEX, split_code
from ehr.formats.write.arrow_rows import parquet_of
from ehr.formats.write.dates import SYNTHETIC_DATES, days_of
from ehr.formats.write.lab_values import LabValues
from ehr.formats.write.protocol import Block, CohortSource, Writer

SCHEMA = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us")),
        pa.field("code", pa.string(), nullable=False),
        pa.field("numeric_value", pa.float32()),
    ],
    {"dates": SYNTHETIC_DATES, "meds_version": "0.4.1"},
)
UNIT, NAME = pa.field("unit", pa.string()), pa.field("description", pa.string())


def write_meds(cohort: CohortSource) -> Iterator[bytes]:
    """One shard: subjects are contiguous, and what has no time (sex, age) comes first, as MEDS wants it."""
    labs = LabValues(cohort)
    schema = SCHEMA.append(UNIT) if any(unit.text for unit in labs.units) else SCHEMA
    schema = schema.append(NAME) if cohort.with_names else schema
    return parquet_of(schema, (_events(cohort, block, labs, schema) for block in cohort.blocks()))


def _events(cohort: CohortSource, block: Block, labs: LabValues, schema: pa.Schema) -> pa.RecordBatch:
    row, code = block.rows()
    has_no_time = np.array([split_code(name)[0] in (SEX, AGE) for name in labs.names], dtype=bool)[code]
    order = np.lexsort((~has_no_time, row))
    subject, code, has_no_time = row[order] + block.first_record, code[order], has_no_time[order]
    numbers = labs.of(block)[order]
    names = pa.array([name.replace(":", "//", 1) for name in labs.names], pa.string())
    columns = [
        pa.array(subject, pa.int64()),
        pa.array(days_of(subject).astype("datetime64[us]"), pa.timestamp("us"), mask=has_no_time),
        names.take(pa.array(code)),
        pa.array(numbers.astype(np.float32), pa.float32(), mask=np.isnan(numbers)),
    ]
    if UNIT.name in schema.names:
        units = pa.array([unit.text or None for unit in labs.units], pa.string())
        columns.append(units.take(pa.array(code)))
    if cohort.with_names:
        columns.append(pa.array(map(cohort.name_of, labs.names), pa.string()).take(pa.array(code)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


MEDS_PARQUET = Writer(
    "meds.parquet",
    "application/vnd.apache.parquet",
    "meds.parquet",
    write_meds,
    "records without codes; dates are synthesised",
    by_ranges=True,
)
