"""Zips of files. Members are read as streams and written nowhere under a name of theirs; tricks are refused."""

import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import BinaryIO

from ehr.errors import DataError, TooLargeError
from ehr.formats.read.sources import EMPTY_ZIP, ZIP, Budget, ByteStream, SourceFile

MOST_MEMBERS = 1000


def unpacked(files: Sequence[SourceFile]) -> list[SourceFile]:
    """The files of an upload, with each zip in the place of its members; all share one limit."""
    found: list[SourceFile] = []
    for file in files:
        found += _members(file) if file.kind == "zip" and not file.label.lower().endswith(".npz") else [file]
    if not found:
        raise DataError("there is no file in the zip")
    shared = Budget(files[0].limits.inflated_bytes, files[0].limits.inflated_bytes)
    for file in found:
        file.budget = shared
    return found


def _members(file: SourceFile) -> list[SourceFile]:
    try:
        with file.open_raw() as raw, zipfile.ZipFile(raw) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        raise DataError("the zip file is damaged or was cut off") from None
    if len(infos) > MOST_MEMBERS:
        raise TooLargeError(f"the zip holds more than {MOST_MEMBERS:,} files")
    if sum(info.file_size for info in infos) > file.limits.inflated_bytes:
        raise TooLargeError(f"the zip holds more than {file.limits.inflated_bytes:,} bytes once it is decompressed")
    members = []
    for info in infos:
        _refuse_tricks(info)
        name = PurePosixPath(info.filename).name
        if not info.is_dir() and not name.startswith(".") and "__MACOSX" not in info.filename:
            members.append(_member(file, info, name))
    names = [info.filename for info in infos]
    if len(set(names)) < len(names):
        raise DataError("the zip names a file twice")
    return members


def _refuse_tricks(info: zipfile.ZipInfo) -> None:
    path = PurePosixPath(info.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in info.filename:
        raise DataError("the zip names a file outside itself")
    if stat.S_ISLNK(info.external_attr >> 16):
        raise DataError("the zip holds a link")
    if info.flag_bits & 0x1:
        raise DataError("the zip is encrypted")


def _member(file: SourceFile, info: zipfile.ZipInfo, name: str) -> SourceFile:
    def open_raw() -> BinaryIO:
        archive = file.open_raw()
        try:
            return Member(archive, info)  # type: ignore[return-value]
        except BaseException:
            archive.close()
            raise

    inner = SourceFile(name, open_raw, file.limits, file.on_read, jumps=False)
    if inner.magic in (ZIP, EMPTY_ZIP) and not name.lower().endswith(".npz"):
        raise DataError("the zip holds another zip; unpack it first")
    return inner


class Member(ByteStream):
    """A file in a zip, as a stream; where it stands is told as the position in the zip."""

    def __init__(self, archive: BinaryIO, info: zipfile.ZipInfo) -> None:
        self._archive = archive
        with _whole_entry():
            self._file = zipfile.ZipFile(archive).open(info)  # noqa: SIM115 - closed with the archive

    def read(self, size: int = -1) -> bytes:
        with _whole_entry():
            return self._file.read(size)

    def tell(self) -> int:
        return self._archive.tell()

    def close(self) -> None:
        if not self.closed:
            self._archive.close()
        super().close()


@contextmanager
def _whole_entry() -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError):
        raise DataError("a file in the zip is damaged or its entry is forged") from None
