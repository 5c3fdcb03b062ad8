"""A Delta table in a folder of the cohort's own, by `deltalake` (the extra `delta`)."""

import pyarrow as pa

from ehr.errors import OutsideError
from ehr.formats.write.arrow_rows import schema_of
from ehr.formats.write.lab_values import LabValues
from ehr.formats.write.protocol import CohortSource
from ehr.references import DeltaTable
from model_store.blobs.s3_objects import storage_options
from runtime.places import object_place
from worker.execution import JobRun
from worker.exporting.parquet import told_batches

MISSING = "workers need the extra `delta` to write Delta tables: pip install 'ehr-d3pm[delta]'"


def write_delta(run: JobRun, source: CohortSource, sink: DeltaTable, cohort_id: str) -> str:
    """The address of the table. An attempt that comes second replaces what the first has written."""
    object_place(run.runtime.settings.sink_places, run.claim.owner, sink.url, "sink.url")
    try:
        from deltalake import write_deltalake
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise OutsideError(MISSING) from None
    labs, address = LabValues(source), f"{sink.url}{cohort_id}"
    # Delta has no dictionaries: what is one here becomes plain text
    plain = pa.schema([(each.name, _plain(each.type)) for each in schema_of(source, labs)])
    rows = pa.RecordBatchReader.from_batches(plain, (batch.cast(plain) for batch in told_batches(run, source, labs)))
    try:
        write_deltalake(
            address,
            rows,
            mode="overwrite",
            storage_options=storage_options(),
            description=f"synthetic cohort {cohort_id}",
        )
    except (DeltaError, OSError) as error:
        run.check()  # a job that is cancelled stops inside of it
        raise OutsideError(f"the Delta table could not be written: {type(error).__name__}") from None
    return address


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
