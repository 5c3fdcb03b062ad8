"""parquet: columns record_id and code, written as it is sent, a row group at a time. The format `long` reads it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ehr.formats.protocol import CodeConcepts, Format, Writer
from ehr.formats.write.zips import Sink
from model_store.blobs import BlobStore
from model_store.cohorts import SCHEMA, iter_tables


def write_parquet(store: BlobStore, manifest: dict[str, Any], _: dict[str, CodeConcepts]) -> Iterator[bytes]:
    sink = Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), SCHEMA, compression="zstd") as writer:
        for batch in iter_tables(store, manifest):
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


LEAVES_OUT = "records without codes"
PARQUET = Format(writers=(Writer("parquet", "application/vnd.apache.parquet", "parquet", write_parquet, LEAVES_OUT),))
