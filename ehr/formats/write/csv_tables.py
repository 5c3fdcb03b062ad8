"""CSV tables of the zip formats: rows put together column by column in Arrow, without a Python object per cell."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ehr.formats.spreadsheet import quoted

Cells = Mapping[str, pa.StringArray | str]


def names(text: str) -> tuple[str, ...]:
    """Column names written as a text, for tables that have many."""
    return tuple(text.split())


def lines(columns: Sequence[str], cells: Cells, n: int) -> bytes:
    """`n` rows; a column that `cells` does not name is empty, and a text stands in every row."""
    if n == 0:
        return b""
    row = [cells.get(name, "") for name in columns]
    if all(isinstance(cell, str) for cell in row):
        return ((",".join(map(str, row)) + "\n") * n).encode()
    return joined(pc.binary_join_element_wise(pc.binary_join_element_wise(*row, ","), "\n", ""))


def numbers(values: NDArray[np.int64]) -> pa.StringArray:
    return pa.array(values, pa.int64()).cast(pa.string())


def days(values: NDArray[np.datetime64], time: str = "") -> pa.StringArray:
    text = pa.array(values).cast(pa.date32()).cast(pa.string())
    return pc.binary_join_element_wise(text, time, "") if time else text


def by_code(texts: Sequence[str], code: NDArray[np.int64]) -> pa.StringArray:
    """The text of each row's code, quoted once per code."""
    return pa.array([quoted(text) for text in texts], pa.string()).take(pa.array(code))


def one_row(columns: Sequence[str], cells: Mapping[str, Any]) -> bytes:
    return (",".join(quoted(str(cells.get(name, ""))) for name in columns) + "\n").encode()


def table(columns: Sequence[str], blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield (",".join(columns) + "\n").encode()
    yield from blocks


def joined(rows: pa.StringArray) -> bytes:
    """The strings one after another: the array's own buffer, without a Python object per row."""
    if len(rows) == 0:
        return b""
    text = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows), "")
    return text[0].as_buffer().to_pybytes()  # type: ignore[no-any-return]
