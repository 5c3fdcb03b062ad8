"""A cohort's records as Arrow rows, columns record_id and code; the codes are one dictionary."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ehr.formats.write.protocol import Block, CohortSource
from ehr.formats.write.zips import Sink

SCHEMA = pa.schema([("record_id", pa.int64()), ("code", pa.dictionary(pa.int32(), pa.string()))])
ROWS_AT_A_TIME = 1 << 16


def batch_of(block: Block, vocabulary: Sequence[str]) -> pa.RecordBatch:
    """The rows of a block, in order."""
    row, _ = block.rows()
    codes = pa.array(vocabulary, pa.string())
    code = pa.DictionaryArray.from_arrays(pa.array(block.records.indices, pa.int32()), codes)
    return pa.RecordBatch.from_arrays([pa.array(row + block.first_record, pa.int64()), code], schema=SCHEMA)


def parquet_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """A Parquet file, sent as it is written: a row group for each batch."""
    sink = Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


def row_batches(cohort: CohortSource) -> Iterator[pa.RecordBatch]:
    """The cohort's rows in order, a bounded number at a time."""
    for block in cohort.blocks():
        batch = batch_of(block, cohort.vocabulary)
        for first in range(0, len(batch), ROWS_AT_A_TIME):
            yield batch.slice(first, ROWS_AT_A_TIME)
