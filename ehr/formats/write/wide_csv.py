"""wide.csv: a row per record and a column per code, 0 or 1. The format `wide` reads it.

There is no place for names: a second header would be a record to whoever reads it.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ehr.formats.spreadsheet import defused
from ehr.formats.write.protocol import CohortSource, Writer

BYTES_AT_A_TIME = 1 << 20


def write_wide_csv(cohort: CohortSource) -> Iterator[bytes]:
    """A row of zeros is made once; a record's line is a copy with its ones set."""
    yield (",".join(["record_id", *(defused(code) for code in cohort.vocabulary)]) + "\r\n").encode()
    zeros = np.frombuffer((",0" * len(cohort.vocabulary) + "\r\n").encode(), dtype=np.uint8)
    for first_record, records in cohort.blocks():
        for first in range(0, len(records), step := max(BYTES_AT_A_TIME // len(zeros), 1)):
            yield b"".join(
                _line(zeros, first_record + i, records.indices[records.indptr[i] : records.indptr[i + 1]])
                for i in range(first, min(first + step, len(records)))
            )


def _line(zeros: NDArray[np.uint8], record: int, codes: NDArray[np.int32]) -> bytes:
    line = zeros.copy()
    line[2 * codes.astype(np.int64) + 1] = ord("1")
    return str(record).encode() + line.tobytes()


WIDE_CSV = Writer("wide.csv", "text/csv; charset=utf-8", "csv", write_wide_csv, has_names=False)
