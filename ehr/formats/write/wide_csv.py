"""wide.csv: a row per record and a column per code, 0 or 1. The format `wide` reads it. Histories have a row per visit,
with patient_id and date.

There is no place for names: a second header would be a record to whoever reads it.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ehr.formats.spreadsheet import defused
from ehr.formats.write.protocol import Block, CohortSource, Writer

BYTES_AT_A_TIME = 1 << 20


def write_wide_csv(cohort: CohortSource) -> Iterator[bytes]:
    """A row of zeros is made once; a record's line is a copy with its ones set."""
    ids = ["record_id"] if cohort.origin is None else ["record_id", "patient_id", "date"]
    yield (",".join([*ids, *(defused(code) for code in cohort.vocabulary)]) + "\r\n").encode()
    zeros = np.frombuffer((",0" * len(cohort.vocabulary) + "\r\n").encode(), dtype=np.uint8)
    for block in cohort.blocks():
        records, own = block.records, _ids(block)
        for first in range(0, len(records), step := max(BYTES_AT_A_TIME // len(zeros), 1)):
            yield b"".join(
                _line(zeros, own[i], records.indices[records.indptr[i] : records.indptr[i + 1]])
                for i in range(first, min(first + step, len(records)))
            )


def _ids(block: Block) -> list[str]:
    """The first cells of each row."""
    numbers = [str(number) for number in block.numbers().tolist()]
    if block.days is None:
        return numbers
    days = zip(block.people().tolist(), block.dates().astype(str).tolist(), strict=True)
    return [f"{number},{patient},{day}" for number, (patient, day) in zip(numbers, days, strict=True)]


def _line(zeros: NDArray[np.uint8], own: str, codes: NDArray[np.int32]) -> bytes:
    line = zeros.copy()
    line[2 * codes.astype(np.int64) + 1] = ord("1")
    return own.encode() + line.tobytes()


WIDE_CSV = Writer("wide.csv", "text/csv; charset=utf-8", "csv", write_wide_csv, has_names=False)
