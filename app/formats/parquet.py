"""parquet: columns record_id and code, written as it is sent: a row group at a time."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.formats.protocol import Format
from model_store.blobs import BlobStore
from model_store.cohorts import SCHEMA, iter_tables


class Sink:
    """A file whose bytes are taken away as they come."""

    closed = False

    def __init__(self) -> None:
        self._blocks: list[bytes] = []

    def write(self, data: Any) -> int:
        self._blocks.append(bytes(data))
        return len(self._blocks[-1])

    def flush(self) -> None:
        """Nothing waits here."""

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        taken = b"".join(self._blocks)
        self._blocks.clear()
        return taken


def write_parquet(store: BlobStore, manifest: dict[str, Any]) -> Iterator[bytes]:
    sink = Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), SCHEMA, compression="zstd") as writer:
        for batch in iter_tables(store, manifest):
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


PARQUET = Format("parquet", "application/vnd.apache.parquet", "parquet", write_parquet)
