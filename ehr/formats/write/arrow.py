"""arrow: columns record_id and code as an Arrow IPC stream; the codes are one dictionary, sent once."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ehr.formats.protocol import CodeConcepts, Format, Writer
from ehr.formats.write.cohort_rows import rows_of
from ehr.formats.write.zips import Sink
from model_store.blobs import BlobStore
from model_store.cohorts import SCHEMA, iter_blocks


def write_arrow(store: BlobStore, manifest: dict[str, Any], _: dict[str, CodeConcepts]) -> Iterator[bytes]:
    """A dictionary that changed from batch to batch could not be read as a stream by every reader."""
    sink = Sink()
    codes = pa.array(manifest["vocabulary"], pa.string())
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), SCHEMA) as writer:
        for block in iter_blocks(store, manifest):
            row, code = rows_of(block)
            indices = pa.array(code.astype(np.int32), pa.int32())
            columns = [pa.array(row + block.first_record, pa.int64()), pa.DictionaryArray.from_arrays(indices, codes)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
            yield sink.take()
    yield sink.take()


ARROW = Format(
    writers=(
        Writer(
            "arrow",
            "application/vnd.apache.arrow.stream",
            "arrow",
            write_arrow,
            "records without codes",
        ),
    )
)
