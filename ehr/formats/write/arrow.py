"""arrow: columns record_id and code (with numbers of labs also value and unit; name if wanted) as an Arrow IPC stream.

Texts are dictionaries, each sent once."""

from collections.abc import Iterator

import pyarrow as pa

from ehr.formats.write.arrow_rows import block_batches, schema_of
from ehr.formats.write.lab_values import LabValues
from ehr.formats.write.protocol import CohortSource, Writer
from ehr.formats.write.zips import Sink


def write_arrow(cohort: CohortSource) -> Iterator[bytes]:
    """A dictionary that changed from batch to batch could not be read as a stream by every reader."""
    sink, labs = Sink(), LabValues(cohort)
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema_of(cohort, labs)) as writer:
        for batch in block_batches(cohort, labs):
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


ARROW = Writer("arrow", "application/vnd.apache.arrow.stream", "arrow", write_arrow, "records without codes")
