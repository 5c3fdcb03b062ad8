"""parquet: columns record_id and code, written as it is sent, a row group at a time. The format `long` reads it."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from ehr.formats.write.arrow_rows import SCHEMA, row_batches
from ehr.formats.write.protocol import CohortSource, Writer
from ehr.formats.write.zips import Sink


def write_parquet(cohort: CohortSource) -> Iterator[bytes]:
    sink = Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), SCHEMA, compression="zstd") as writer:
        for batch in row_batches(cohort):
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


PARQUET = Writer("parquet", "application/vnd.apache.parquet", "parquet", write_parquet, "records without codes")
