"""Parquet files in a folder of the cohort's own: `part-00000.parquet` and so on, then `_manifest.json` and `_SUCCESS`.

The same cohort gives the same bytes, so an attempt that comes second finds what the first has written.
"""

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from ehr.canonical_json import to_json
from ehr.formats.write.arrow_rows import ROWS_AT_A_TIME, block_batches, parquet_of, schema_of
from ehr.formats.write.lab_values import LabValues
from ehr.formats.write.protocol import CohortSource
from ehr.references import ParquetFolder
from model_store.blobs.s3_objects import S3Objects
from runtime.places import object_place
from worker.execution import JobRun


def write_folder(run: JobRun, source: CohortSource, sink: ParquetFolder, cohort_id: str) -> str:
    """The address of the folder."""
    object_place(run.runtime.settings.sink_places, run.claim.owner, sink.url, "sink.url")
    bucket, _, prefix = f"{sink.url}{cohort_id}".removeprefix("s3://").partition("/")
    objects, labs = S3Objects(bucket), LabValues(source)
    batches = told_batches(run, source, labs)
    names: list[str] = []
    while (first := next(batches, None)) is not None:
        names.append(f"part-{len(names):05d}.parquet")
        some = _some(first, batches, sink.records_per_file)
        with objects.create(f"{prefix}/{names[-1]}") as file:
            for block in parquet_of(schema_of(source, labs), some):
                file.write(block)
    for name, data in (("_manifest.json", to_json({**source.manifest, "files": names})), ("_SUCCESS", b"")):
        with objects.create(f"{prefix}/{name}") as file:
            file.write(data)
    return f"s3://{bucket}/{prefix}/"


def told_batches(run: JobRun, source: CohortSource, labs: LabValues) -> Iterator[pa.RecordBatch]:
    """The cohort's rows, while the job can be stopped and tells how far it is."""
    run.progress.step("write", max(source.n_records, 1), unit="records")
    for batch in block_batches(source, labs):
        run.check()
        yield batch
        if len(batch):
            whose = "patient_id" if source.origin is not None else "record_id"
            run.progress.advance(batch.column(batch.schema.get_field_index(whose))[-1].as_py() + 1)


def _some(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], most_records: int) -> Iterator[pa.RecordBatch]:
    """Batches of a file: whole blocks, until it has as many records as it may."""
    begin = first.column(0)[0].as_py() if len(first) else 0
    for batch in chain([first], rest):
        for at in range(0, len(batch), ROWS_AT_A_TIME):
            yield batch.slice(at, ROWS_AT_A_TIME)
        if len(batch) and batch.column(0)[-1].as_py() - begin + 1 >= most_records:
            return
