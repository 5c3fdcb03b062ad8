"""parquet: columns record_id and code, written as it is sent, a row group at a time. The format `long` reads it."""

from collections.abc import Iterator

from ehr.formats.write.arrow_rows import SCHEMA, parquet_of, row_batches
from ehr.formats.write.protocol import CohortSource, Writer


def write_parquet(cohort: CohortSource) -> Iterator[bytes]:
    return parquet_of(SCHEMA, row_batches(cohort))


PARQUET = Writer("parquet", "application/vnd.apache.parquet", "parquet", write_parquet, "records without codes")
