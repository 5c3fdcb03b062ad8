"""An uploaded file, and what every reader gives of it: batches of text columns, a bounded number of rows at a time."""

import gzip
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

import pyarrow as pa

from model_store.errors import DataError, TooLargeError
from worker.ingestion.rejects import Rejects

GZIP = b"\x1f\x8b"
REQUIRED, OPTIONAL = ("record_id", "code"), ("vocabulary", "patient_id")
COLUMNS = (*REQUIRED, *OPTIONAL)


@dataclass(frozen=True)
class Limits:
    """What an upload may not pass, whatever it claims to be."""

    inflated_bytes: int
    rows: int
    field_bytes: int


@dataclass(frozen=True)
class Source:
    """A file on this machine. `on_read` is told how many of its bytes have been read; it may raise to stop."""

    path: Path
    on_read: Callable[[int], None]

    def head(self, n: int = 4) -> bytes:
        with self.path.open("rb") as file:
            return file.read(n)


@dataclass(frozen=True)
class Batch:
    """Rows of text columns named as in COLUMNS; `first_line` is the line (or row) number of the first of them."""

    columns: dict[str, pa.StringArray]
    first_line: int


class Reader(ABC):
    """A format of uploads."""

    name: ClassVar[str]

    def __init__(self, source: Source, limits: Limits) -> None:
        self.source, self.limits = source, limits

    @classmethod
    @abstractmethod
    def recognises(cls, source: Source) -> bool:
        """Whether the file looks like this format."""

    @abstractmethod
    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        """The rows, in order. DataError (without quoting the file) if it cannot be read."""


def chosen_columns(names: list[str]) -> dict[str, str]:
    """Which of a file's columns are ours: ours -> the file's name. Upper case and blanks do not matter."""
    found: dict[str, str] = {}
    for name in names:
        plain = name.strip().strip('"').lower()
        if plain in found:
            raise DataError(f"the column {plain} is there twice")
        if plain in COLUMNS:
            found[plain] = name
    missing = [name for name in REQUIRED if name not in found]
    if missing:  # the names that are there are not told: without a header they would be somebody's data
        raise DataError(
            f"the file has no column {' and no column '.join(missing)}; its first line must name the columns"
            f" {', '.join(REQUIRED)} and may name {', '.join(OPTIONAL)}"
        )
    return found


class Inflating(io.RawIOBase):
    """Reads a plain or gzip file, counts, and refuses to give out more than the limit."""

    def __init__(self, source: Source, limit: int) -> None:
        self._raw = source.path.open("rb")
        self._source, self._limit, self._given = source, limit, 0
        self.compressed = self._raw.read(2) == GZIP
        self._raw.seek(0)
        self._file: BinaryIO = gzip.GzipFile(fileobj=self._raw) if self.compressed else self._raw  # type: ignore[assignment]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise DataError("the gzip file is damaged or was cut off") from None
        self._given += len(data)
        if self._given > self._limit:
            raise TooLargeError(f"the file holds more than {self._limit:,} bytes once it is decompressed")
        self._source.on_read(self._raw.tell())
        return data

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()
