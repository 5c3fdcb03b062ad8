"""Zip files and others written as they are sent: bytes are taken away as they come."""

import io
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

MADE = (1980, 1, 1, 0, 0, 0)  # the same cohort gives the same bytes whenever it is downloaded


class Sink(io.RawIOBase):
    """A file whose bytes are taken away as they come."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []

    def write(self, data: Any) -> int:
        self._blocks.append(bytes(data))
        return len(self._blocks[-1])

    def writable(self) -> bool:
        return True

    def take(self) -> bytes:
        taken = b"".join(self._blocks)
        self._blocks.clear()
        return taken


class ZipStream:
    """A zip, a file after another."""

    def __init__(self) -> None:
        self._sink = Sink()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1)

    def file(self, name: str, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Add a file; gives what can be sent meanwhile."""
        info = zipfile.ZipInfo(name, MADE)
        info.compress_type = zipfile.ZIP_DEFLATED
        with self._zip.open(info, "w", force_zip64=True) as entry:
            for block in blocks:
                entry.write(block)
                if taken := self._sink.take():
                    yield taken
        if taken := self._sink.take():
            yield taken

    def end(self) -> bytes:
        """The directory at the end."""
        self._zip.close()
        return self._sink.take()
