"""Uploaded files as they are: plain, gzip, zstd or inside a zip; bounded in bytes, and never under a client's path.

What lies in a zip is read by archives.py.
"""

import csv
import gzip
import io
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ehr.errors import DataError, TooLargeError

GZIP, ZSTD, ZIP, PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"PAR1"
EMPTY_ZIP = b"PK\x05\x06"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
LONGEST_HEADER = 4 << 20  # a wide table names thousands of codes
DELIMITERS = (",", ";", "\t", "|")
EXTENSIONS = (".gz", ".zst", ".csv", ".tsv", ".txt", ".parquet", ".pq", ".ndjson", ".jsonl", ".json", ".npz")
HEAD_BYTES, COPY_BYTES = 1 << 16, 1 << 20


@dataclass(frozen=True)
class Limits:
    """What an upload may not pass, whatever it claims to be."""

    inflated_bytes: int
    rows: int
    field_bytes: int


@dataclass
class Budget:
    """The bytes an upload may still give out once decompressed, over all its files."""

    left: int
    total: int

    def take(self, n: int) -> None:
        self.left -= n
        if self.left < 0:
            raise TooLargeError(f"the upload holds more than {self.total:,} bytes once it is decompressed")


@dataclass
class SourceFile:
    """A file of an upload. `open_raw` opens its bytes as stored; `on_read` hears of each byte and may raise to stop."""

    label: str
    open_raw: Callable[[], BinaryIO]
    limits: Limits
    on_read: Callable[[int], None] = lambda _: None
    jumps: bool = True  # whether one can seek in the raw bytes
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.limits.inflated_bytes, self.limits.inflated_bytes)

    @classmethod
    def at(
        cls, path: Path, label: str, limits: Limits, on_read: Callable[[int], None] = lambda _: None
    ) -> "SourceFile":
        return cls(label, lambda: path.open("rb"), limits, on_read)

    @property
    def called(self) -> str:
        """For messages: the client's own name of the file."""
        return self.label or "the file"

    @property
    def stem(self) -> str:
        """`diagnoses_icd` of `DIAGNOSES_ICD.csv.gz`."""
        name = self.label.lower()
        while any(name.endswith(extension) for extension in EXTENSIONS):
            name = name[: name.rindex(".")]
        return name

    @cached_property
    def magic(self) -> bytes:
        with self.open_raw() as file:
            return file.read(4)

    @cached_property
    def head(self) -> bytes:
        """The first bytes once decompressed."""
        data = b""
        with self.inflated(count=False) as file:
            while len(data) < HEAD_BYTES and (block := file.read(HEAD_BYTES - len(data))):
                data += block
        return data

    @cached_property
    def kind(self) -> str:
        """`parquet`, `zip`, `json` (also NDJSON), `table` (text) or `binary`."""
        if self.magic == PARQUET:
            return "parquet"
        if self.magic in (ZIP, EMPTY_ZIP):
            return "zip"
        if self.head[:2] in UTF_16:
            return "table"  # whose header then says what is wrong with it
        text = self.head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if text[:1] in (b"{", b"["):
            return "json"
        return "binary" if b"\x00" in text[:1024] else "table"

    @cached_property
    def delimiter(self) -> str:
        return max(DELIMITERS, key=self._first_line.count)

    @cached_property
    def _first_line(self) -> str:
        with self.inflated(count=False) as file:
            data = b""
            while b"\n" not in data and (block := file.read(HEAD_BYTES)):
                data += block
                if len(data) > LONGEST_HEADER:
                    raise DataError(f"the first line of {self.called} is too long to be a header")
        if data == b"":
            raise DataError(f"{self.called} is empty")
        if data[:2] in UTF_16:
            raise DataError(f"{self.called} is UTF-16 text; save it as UTF-8")
        try:
            return data.split(b"\n", 1)[0].decode("utf-8-sig").rstrip("\r")
        except UnicodeDecodeError:
            raise DataError(f"the first line of {self.called} is not UTF-8 text") from None

    @cached_property
    def schema(self) -> pa.Schema:
        """Of a Parquet file."""
        with self.seekable(count=False) as file, readable_parquet():
            return pq.read_schema(file)

    @cached_property
    def columns(self) -> list[str]:
        """The names of a table's columns as they stand there; empty if it is no table."""
        if self.kind == "parquet":
            return list(self.schema.names)
        if self.kind != "table":
            return []
        return next(csv.reader([self._first_line], delimiter=self.delimiter), [])

    @cached_property
    def plain_columns(self) -> list[str]:
        """The same without blanks, quotes and capitals."""
        return [name.strip().strip('"').lower() for name in self.columns]

    @contextmanager
    def inflated(self, count: bool = True) -> Iterator[BinaryIO]:
        """The bytes once decompressed, as a stream that refuses to pass the upload's limit."""
        with self.open_raw() as raw, Inflating(raw, self, count) as stream:
            yield stream  # type: ignore[misc]

    def whole(self, most: int, too_large: str) -> bytes:
        """All bytes once decompressed; TooLargeError with these words if they are more than `most`."""
        data = b""
        with self.inflated() as stream:
            while block := stream.read(COPY_BYTES):
                data += block
                if len(data) > most:
                    raise TooLargeError(too_large)
        return data

    @contextmanager
    def seekable(self, count: bool = True) -> Iterator[BinaryIO]:
        """The stored bytes as a file one can jump in: a member of a zip is copied to a nameless file."""
        with self.open_raw() as raw:
            if self.jumps:
                yield raw
                return
            with tempfile.TemporaryFile() as copy:
                while block := raw.read(COPY_BYTES):
                    if count:
                        self.budget.take(len(block))
                    copy.write(block)
                copy.seek(0)
                yield copy


class ByteStream(io.RawIOBase):
    """A stream whose subclasses say how to `read`."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class Inflating(ByteStream):
    """Reads plain, gzip or zstd bytes, counts them, and turns what a damaged file raises into a DataError."""

    def __init__(self, raw: BinaryIO, source: SourceFile, count: bool) -> None:
        self._raw, self._source, self._count = raw, source, count
        magic = source.magic
        self._file: BinaryIO = raw
        if magic.startswith(GZIP):
            self._file = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]
        elif magic == ZSTD:
            self._file = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise DataError(f"{self._source.called}: the gzip data is damaged or was cut off") from None
        except (pa.ArrowInvalid, OSError) as error:
            if self._source.magic == ZSTD:
                raise DataError(f"{self._source.called}: the zstd data is damaged or was cut off") from None
            raise error
        if self._count:
            self._source.budget.take(len(data))
            if not self._raw.closed:
                self._source.on_read(self._raw.tell())
        return data


@contextmanager
def readable_parquet() -> Iterator[None]:
    """What Arrow says about a damaged Parquet file may quote it."""
    try:
        yield
    except (pa.ArrowException, OSError):
        raise DataError("the file is not a readable Parquet table") from None
