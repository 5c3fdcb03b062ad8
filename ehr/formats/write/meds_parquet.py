"""meds.parquet: a shard of the Medical Event Data Standard 0.4. A record is a subject; codes are SYSTEM//CODE."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ehr.codes.systems import AGE, SEX, split_code
from ehr.formats.write.arrow_rows import parquet_of
from ehr.formats.write.dates import SYNTHETIC_DATES, days_of
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


def write_meds(cohort: CohortSource) -> Iterator[bytes]:
    """One shard: subjects are contiguous, and what has no time (sex, age) comes first, as MEDS wants it."""
    return parquet_of(SCHEMA, (_events(block, cohort.vocabulary) for block in cohort.blocks()))


def _events(block: Block, vocabulary: Sequence[str]) -> pa.RecordBatch:
    row, code = block.rows()
    has_no_time = np.array([split_code(name)[0] in (SEX, AGE) for name in vocabulary], dtype=bool)[code]
    order = np.lexsort((~has_no_time, row))
    subject, code, has_no_time = row[order] + block.first_record, code[order], has_no_time[order]
    names = pa.array([name.replace(":", "//", 1) for name in vocabulary], pa.string())
    columns = [
        pa.array(subject, pa.int64()),
        pa.array(days_of(subject).astype("datetime64[us]"), pa.timestamp("us"), mask=has_no_time),
        names.take(pa.array(code)),
        pa.nulls(len(code), pa.float32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


MEDS_PARQUET = Writer(
    "meds.parquet",
    "application/vnd.apache.parquet",
    "meds.parquet",
    write_meds,
    "records without codes; values of labs; dates are synthesised",
)
