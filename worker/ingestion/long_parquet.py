"""Long Parquet: the same columns as long CSV, of any type that has one text form."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from model_store.errors import DataError, TooLargeError
from worker.ingestion.rejects import Rejects
from worker.ingestion.source import Batch, Reader, Source, chosen_columns

ROWS_AT_A_TIME = 1 << 18
# a row group is read whole: one that is larger than this would not fit into bounded memory
LARGEST_ROW_GROUP = 2 << 30


class LongParquet(Reader):
    name = "long.parquet"

    @classmethod
    def recognises(cls, source: Source) -> bool:
        return source.head() == b"PAR1"

    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        try:
            with pq.ParquetFile(self.source.path) as file:
                self._refuse_bombs(file.metadata)
                chosen = chosen_columns(file.schema_arrow.names)
                row, size = 1, self.source.path.stat().st_size
                for batch in file.iter_batches(ROWS_AT_A_TIME, columns=list(chosen.values())):
                    yield Batch({ours: _as_text(batch.column(theirs)) for ours, theirs in chosen.items()}, row)
                    row += batch.num_rows
                    self.source.on_read(int(size * min((row - 1) / max(file.metadata.num_rows, 1), 1.0)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
            raise DataError("the file is not a readable Parquet table") from None

    def _refuse_bombs(self, metadata: pq.FileMetaData) -> None:
        if metadata.num_rows > self.limits.rows:
            raise TooLargeError(f"the file has more than {self.limits.rows:,} rows")
        sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
        if sum(sizes) > self.limits.inflated_bytes:
            raise TooLargeError(f"the file holds more than {self.limits.inflated_bytes:,} bytes once decompressed")
        if sizes and max(sizes) > LARGEST_ROW_GROUP:
            raise TooLargeError(f"a row group holds more than {LARGEST_ROW_GROUP:,} bytes")


def _as_text(column: pa.Array) -> pa.StringArray:
    if pa.types.is_floating(column.type):
        # 250.0 for 250: the zeros of the code are already lost, and guessing them would be wrong
        raise DataError("codes and ids must be text or whole numbers, not decimal numbers")
    return column.cast(pa.string())
