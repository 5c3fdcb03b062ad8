"""Long CSV: a header line, then one row for each code of a record. Comma, semicolon or tab; plain or gzip."""

import io
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import csv

from model_store.errors import DataError, TooLargeError
from worker.ingestion.rejects import Rejects
from worker.ingestion.source import Batch, Inflating, Limits, Reader, Source, chosen_columns

BLOCK_BYTES = 8 << 20
LONGEST_HEADER = 64 << 10
DELIMITERS = (",", ";", "\t")


class LongCsv(Reader):
    name = "long.csv"

    @classmethod
    def recognises(cls, source: Source) -> bool:
        return b"\x00" not in source.head(1024) or source.head(2) == b"\x1f\x8b"

    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        delimiter, names = _header(self.source, self.limits)
        chosen = chosen_columns(names)
        line = 2
        malformed: list[int] = []

        def skip(row: csv.InvalidRow) -> str:
            malformed.append(row.number if row.number is not None else 0)
            return "skip"

        with Inflating(self.source, self.limits.inflated_bytes) as file:
            try:
                reader = csv.open_csv(
                    pa.PythonFile(file, mode="r"),
                    read_options=csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
                    parse_options=csv.ParseOptions(
                        delimiter=delimiter, newlines_in_values=False, invalid_row_handler=skip
                    ),
                    convert_options=csv.ConvertOptions(
                        include_columns=list(chosen.values()),
                        column_types={name: pa.string() for name in chosen.values()},  # leading zeros stay
                        strings_can_be_null=False,
                    ),
                )
                for batch in reader:
                    columns = {ours: batch.column(theirs) for ours, theirs in chosen.items()}
                    yield Batch(columns, line)
                    line += batch.num_rows
                    if line > self.limits.rows:
                        raise TooLargeError(f"the file has more than {self.limits.rows:,} rows")
            except pa.ArrowInvalid as error:
                raise DataError(_explained(error)) from None  # Arrow's own words quote the line
        rejects.add("wrong-number-of-columns", malformed)


def _header(source: Source, limits: Limits) -> tuple[str, list[str]]:
    """The delimiter and the columns' names."""
    with Inflating(source, limits.inflated_bytes) as file:
        first = io.BufferedReader(file).readline(LONGEST_HEADER)
    if not first.endswith(b"\n") and len(first) == LONGEST_HEADER:
        raise DataError("the first line is too long to be a header")
    try:
        text = first.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise DataError("the file is not UTF-8 text") from None
    delimiter = max(DELIMITERS, key=text.count)
    return delimiter, [name.strip('"') for name in text.split(delimiter)]


def _explained(error: pa.ArrowInvalid) -> str:
    if "UTF8" in str(error) or "UTF-8" in str(error):
        return "the file is not UTF-8 text"
    if "straddling" in str(error):
        return f"a line is longer than {BLOCK_BYTES:,} bytes"
    return "the file is not a readable CSV table"
