"""A cohort's records as Arrow rows, columns record_id and code; the codes are one dictionary.

Histories have patient_id and date after record_id, which numbers visits. Where labs have numbers, the columns value and
unit follow, and where names are wanted, name. The code keeps its decile all the same: whoever reads these columns by
name finds what was always there.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ehr.formats.write.lab_values import LabValues
from ehr.formats.write.protocol import Block, CohortSource
from ehr.formats.write.zips import Sink

TEXTS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([("record_id", pa.int64()), ("code", TEXTS)])
TIME = (pa.field("patient_id", pa.int64()), pa.field("date", pa.date32()))
NUMBERS = (pa.field("value", pa.float64()), pa.field("unit", TEXTS))
NAMES = (pa.field("name", TEXTS),)
ROWS_AT_A_TIME = 1 << 16


def batch_of(block: Block, vocabulary: Sequence[str]) -> pa.RecordBatch:
    """The rows of a block, in order."""
    row, _ = block.rows()
    codes = pa.array(vocabulary, pa.string())
    code = pa.DictionaryArray.from_arrays(pa.array(block.records.indices, pa.int32()), codes)
    return pa.RecordBatch.from_arrays([pa.array(row + block.first_record, pa.int64()), code], schema=SCHEMA)


def schema_of(cohort: CohortSource, labs: LabValues) -> pa.Schema:
    time = TIME if cohort.origin is not None else ()
    return pa.schema(
        [
            SCHEMA.field("record_id"),
            *time,
            SCHEMA.field("code"),
            *(NUMBERS if labs else ()),
            *(NAMES if cohort.with_names else ()),
        ]
    )


def parquet_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """A Parquet file, sent as it is written: a row group for each batch."""
    sink = Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


def block_batches(cohort: CohortSource, labs: LabValues) -> Iterator[pa.RecordBatch]:
    """The cohort's rows in order, a block at a time."""
    units = TextOfCode([unit.text or None for unit in labs.units])
    names = TextOfCode([cohort.name_of(code) for code in cohort.vocabulary] if cohort.with_names else [])
    schema = schema_of(cohort, labs)
    for block in cohort.blocks():
        columns = batch_of(block, cohort.vocabulary).columns
        if cohort.origin is not None:
            row, _ = block.rows()
            columns[1:1] = [pa.array(block.people()[row], pa.int64()), pa.array(block.dates()[row]).cast(pa.date32())]
        if labs:
            numbers = labs.of(block)
            columns += [pa.array(numbers, pa.float64(), mask=np.isnan(numbers)), units.of(block)]
        if cohort.with_names:
            columns.append(names.of(block))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


class TextOfCode:
    """A text for each code of a vocabulary, as one dictionary; None where there is none."""

    def __init__(self, texts: Sequence[str | None]) -> None:
        distinct = {text: place for place, text in enumerate(sorted({text for text in texts if text is not None}))}
        self._texts = pa.array(list(distinct), pa.string())
        self._places = pa.array([None if text is None else distinct[text] for text in texts], pa.int32())

    def of(self, block: Block) -> pa.DictionaryArray:
        """Of each row."""
        return pa.DictionaryArray.from_arrays(self._places.take(pa.array(block.records.indices)), self._texts)


def row_batches(cohort: CohortSource, labs: LabValues) -> Iterator[pa.RecordBatch]:
    """The same, a bounded number of rows at a time."""
    for batch in block_batches(cohort, labs):
        for first in range(0, len(batch), ROWS_AT_A_TIME):
            yield batch.slice(first, ROWS_AT_A_TIME)
