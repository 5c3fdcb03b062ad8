"""arrow and feather: columns record_id and code (with numbers of labs also value and unit; name if wanted) as an Arrow
IPC stream, for whoever reads it from end to end, and as an Arrow IPC file, for whoever looks things up in it.

Texts are dictionaries, each sent once."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from ehr.formats.write.arrow_rows import block_batches, schema_of
from ehr.formats.write.lab_values import LabValues
from ehr.formats.write.protocol import CohortSource, Writer
from ehr.formats.write.zips import Sink


def write_arrow(cohort: CohortSource) -> Iterator[bytes]:
    """A dictionary that changed from batch to batch could not be read as a stream by every reader."""
    return _written(cohort, pa.ipc.new_stream)


def write_feather(cohort: CohortSource) -> Iterator[bytes]:
    """Version 2 of Feather is the Arrow IPC file."""
    return _written(cohort, pa.ipc.new_file)


def _written(cohort: CohortSource, opened: Callable[..., Any]) -> Iterator[bytes]:
    sink, labs = Sink(), LabValues(cohort)
    with opened(pa.PythonFile(sink, mode="w"), schema_of(cohort, labs)) as writer:
        for batch in block_batches(cohort, labs):
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


ARROW = Writer("arrow", "application/vnd.apache.arrow.stream", "arrow", write_arrow, "records without codes")
FEATHER = Writer(
    "feather", "application/vnd.apache.arrow.file", "feather", write_feather, "records without codes", by_ranges=True
)
