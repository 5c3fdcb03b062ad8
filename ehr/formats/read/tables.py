"""Rows of CSV, TSV and Parquet tables: the wanted columns as text, a bounded number of rows at a time.

Everything is read as text, so that codes keep their zeros and 64-bit ids their last digits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from ehr.errors import DataError, TooLargeError
from ehr.formats.read.protocol import Lines
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile, readable_parquet

BLOCK_BYTES = 8 << 20
ROWS_AT_A_TIME = 1 << 17
CELLS_AT_A_TIME = 1 << 22
# a row group is read whole: one that is larger than this would not fit into bounded memory
LARGEST_ROW_GROUP = 2 << 30
LONGEST_TEXTS = 256 << 20  # of a column in one batch
NAME = "name"  # role of what a row calls its code: a name that cannot be read is none, and its row is as good as others
# roles in which decimal numbers lose nothing: values, and concept ids, which are short and which pandas makes decimal
# as soon as one is missing; so do those of wide tables, which are positions
CONCEPT_IDS = ("concept", "source", "type", "race", "race_source", "ethnicity", "ethnicity_source")
NUMERIC = ("value", *CONCEPT_IDS)


@dataclass(frozen=True)
class Rows:
    """Some rows of a table: text columns by role, and the line of each row."""

    file: str
    lines: Lines
    columns: Mapping[str, pa.StringArray]
    numbers: frozenset[str] = frozenset()  # roles whose column was a number in the file

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, mask: NDArray[np.bool_]) -> "Rows":
        if mask.all():
            return self
        keep = pa.array(mask)
        columns = {role: column.filter(keep) for role, column in self.columns.items()}
        return Rows(self.file, self.lines[mask], columns, self.numbers)


def read_rows(
    file: SourceFile, wanted: Mapping[str, str | int], rejects: Rejects, block_bytes: int = BLOCK_BYTES
) -> Iterator[Rows]:
    """The columns of a table by role; `wanted` is role -> the column's name without capitals, or its position."""
    positions = {role: file.plain_columns.index(at) if isinstance(at, str) else at for role, at in wanted.items()}
    rows = (
        _parquet_rows(file, positions) if file.kind == "parquet" else _csv_rows(file, positions, rejects, block_bytes)
    )
    seen = 0
    for some in rows:
        seen += len(some)
        if seen > file.limits.rows:
            raise TooLargeError(f"the file has more than {file.limits.rows:,} rows")
        yield some


# --- CSV ---


def _csv_rows(file: SourceFile, positions: Mapping[str, int], rejects: Rejects, block_bytes: int) -> Iterator[Rows]:
    names = [str(position) for position in range(len(file.columns))]
    malformed: list[int] = []

    def skip(row: csv.InvalidRow) -> str:
        malformed.append(row.number if row.number is not None else 0)
        return "skip"

    wanted = [names[position] for position in dict.fromkeys(positions.values())]
    with file.inflated() as stream:
        try:
            reader = csv.open_csv(
                pa.PythonFile(stream, mode="r"),
                # the header is skipped and columns are named by position: a name may be there twice
                read_options=csv.ReadOptions(
                    block_size=block_bytes, use_threads=False, column_names=names, skip_rows=1
                ),
                parse_options=csv.ParseOptions(
                    delimiter=file.delimiter, newlines_in_values=True, invalid_row_handler=skip
                ),
                convert_options=csv.ConvertOptions(
                    include_columns=wanted, column_types={name: pa.binary() for name in wanted}
                ),
            )
            line = 2
            for batch in reader:
                lines, line = _lines_of(batch.num_rows, line, malformed)
                columns = {role: batch.column(names[position]) for role, position in positions.items()}
                yield _decoded(file.label, lines, columns, rejects)
        except pa.ArrowInvalid as error:
            if "Empty CSV" not in str(error):  # a header and nothing else
                raise DataError(_explained(error, block_bytes)) from None  # Arrow's own words quote the line
    rejects.add("wrong-number-of-columns", sorted(malformed), file.label)


def _lines_of(n: int, first: int, malformed: Sequence[int]) -> tuple[Lines, int]:
    """The lines of the next n good rows, and the line after them: malformed ones were left out in between."""
    skipped = [line for line in malformed if line >= first]
    if not skipped:
        return np.arange(first, first + n), first + n
    lines = np.setdiff1d(np.arange(first, first + n + len(skipped)), np.array(skipped))[:n]
    return lines, int(lines[-1]) + 1 if n else first


def _decoded(label: str, lines: Lines, columns: Mapping[str, pa.BinaryArray], rejects: Rejects) -> Rows:
    """Binary columns as text; rows with bytes that are not UTF-8 are left out."""
    good = np.ones(len(lines), dtype=bool)
    texts: dict[str, pa.StringArray] = {}
    for role, column in columns.items():
        try:
            texts[role] = column.cast(pa.string())
        except pa.ArrowInvalid:
            values = [_text_or_none(value) for value in column.to_pylist()]
            if role != NAME:
                good &= np.array([value is not None for value in values], dtype=bool)
            texts[role] = pa.array(values, pa.string())
    rejects.add("not-utf-8", lines[~good], label)
    return Rows(label, lines, texts).where(good)


def _text_or_none(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _explained(error: pa.ArrowInvalid, block_bytes: int) -> str:
    if "straddling" in str(error):
        return f"a row is longer than {block_bytes:,} bytes, or a quote is never closed"
    return "the file is not a readable CSV table"


# --- Parquet ---


def _parquet_rows(file: SourceFile, positions: Mapping[str, int]) -> Iterator[Rows]:
    names = file.columns
    wanted = list(dict.fromkeys(names[position] for position in positions.values()))
    rows = max(min(ROWS_AT_A_TIME, CELLS_AT_A_TIME // len(wanted)), 1)
    # texts stay in dictionaries until it is known how long they are once written out
    coded = [name for name in wanted if pa.types.is_string(file.schema.field(name).type)]
    with file.seekable() as stream, readable_parquet(), pq.ParquetFile(stream, read_dictionary=coded) as table:
        _refuse_bombs(file, table.metadata)
        line = 1
        for batch in table.iter_batches(rows, columns=wanted):
            found = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns = {role: found[names[position]] for role, position in positions.items()}
            numbers = frozenset(role for role, column in columns.items() if pa.types.is_integer(column.type))
            texts = {role: _as_text(role, column) for role, column in columns.items()}
            yield Rows(file.label, np.arange(line, line + batch.num_rows), texts, numbers)
            line += batch.num_rows
            file.on_read(stream.tell())


def _refuse_bombs(file: SourceFile, metadata: pq.FileMetaData) -> None:
    if metadata.num_rows > file.limits.rows:
        raise TooLargeError(f"the file has more than {file.limits.rows:,} rows")
    sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    file.budget.take(sum(sizes))
    if sizes and max(sizes) > LARGEST_ROW_GROUP:
        raise TooLargeError(f"a row group holds more than {LARGEST_ROW_GROUP:,} bytes")


def _as_text(role: str, column: pa.Array) -> pa.StringArray:
    if role == NAME and not _is_text(column.type):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary.cast(pa.string())).take(column.indices)
        if (pc.sum(lengths).as_py() or 0) > LONGEST_TEXTS:
            if role == NAME:
                return pa.nulls(len(column), pa.string())
            raise TooLargeError(f"a Parquet column holds more than {LONGEST_TEXTS:,} bytes in {len(column):,} rows")
        column = column.dictionary_decode()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_floating(column.type) and role not in NUMERIC and not role.isdecimal():
        # 250.0 for 250, or a 64-bit id without its last digits: what is lost cannot be guessed
        raise DataError("codes and ids must be text or whole numbers, not decimal numbers")
    if pa.types.is_floating(column.type) and role in CONCEPT_IDS:
        whole = pc.equal(pc.floor(column), column)  # null for what is missing, false for what is no number
        column = pc.if_else(whole, column, None).cast(pa.int64(), safe=False)
    return column.cast(pa.string())


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
