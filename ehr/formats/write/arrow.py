"""arrow: columns record_id and code as an Arrow IPC stream; the codes are one dictionary, sent once."""

from collections.abc import Iterator

import pyarrow as pa

from ehr.formats.write.arrow_rows import SCHEMA, batch_of
from ehr.formats.write.protocol import CohortSource, Writer
from ehr.formats.write.zips import Sink


def write_arrow(cohort: CohortSource) -> Iterator[bytes]:
    """A dictionary that changed from batch to batch could not be read as a stream by every reader."""
    sink = Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), SCHEMA) as writer:
        for block in cohort.blocks():
            writer.write_batch(batch_of(block, cohort.vocabulary))
            yield sink.take()
    yield sink.take()


ARROW = Writer("arrow", "application/vnd.apache.arrow.stream", "arrow", write_arrow, "records without codes")
