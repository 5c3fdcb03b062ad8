"""parquet: columns record_id and code (with numbers of labs also value and unit, and name if wanted), written as it is
sent, a row group at a time. The format `long` reads it."""

from collections.abc import Iterator

from ehr.formats.write.arrow_rows import parquet_of, row_batches, schema_of
from ehr.formats.write.lab_values import LabValues
from ehr.formats.write.protocol import CohortSource, Writer


def write_parquet(cohort: CohortSource) -> Iterator[bytes]:
    labs = LabValues(cohort)
    return parquet_of(schema_of(cohort, labs), row_batches(cohort, labs))


PARQUET = Writer(
    "parquet", "application/vnd.apache.parquet", "parquet", write_parquet, "records without codes", by_ranges=True
)
