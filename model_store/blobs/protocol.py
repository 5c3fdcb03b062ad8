"""What every blob backend can do. A blob appears whole or not at all, and is never changed."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from ehr.errors import CorruptError, StoreError

# Keys are made by layout.py from server-made ids; this is the second lock on the same door.
_KEY = re.compile(r"[a-z0-9_][a-z0-9_.-]*(?:/[a-z0-9_][a-z0-9_.-]*)*\Z")
BLOCK = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A blob in a listing."""

    key: str
    size: int
    written_at: float  # seconds since 1970, by the store's clock


class BlobStore(ABC):
    """A folder of blobs. Keys look like `models/mdl_.../a1/manifest.json`."""

    scheme: ClassVar[str]

    @abstractmethod
    def __init__(self, url: str, scratch: Path | None = None) -> None:
        """`scratch`: a folder on a disk, for blobs that must become files of this machine; a backend makes it."""

    @abstractmethod
    def create(self, key: str) -> AbstractContextManager[BinaryIO]:
        """A file to write to; the blob exists when the block ends without an error, and then it is durable.

        StoreFullError when there is no room; whatever was written is gone then. A blob is written once: StoreError if
        there is one of that name with other contents.
        """

    @abstractmethod
    def open(self, key: str) -> AbstractContextManager[BinaryIO]:
        """A seekable file to read from; StoreError if there is no such blob."""

    @abstractmethod
    def local_path(self, key: str) -> AbstractContextManager[Path]:
        """The blob as a file on this machine, for libraries that want a path."""

    @abstractmethod
    def exists(self, key: str) -> bool: ...

    @abstractmethod
    def entries(self, folder: str) -> Iterator[Entry]:
        """All blobs under a folder, in no particular order; none if there is no such folder."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove a blob; no error if there is none."""

    @abstractmethod
    def check(self) -> None:
        """StoreError if the store cannot be written to; for readiness."""

    def list(self, folder: str) -> Iterator[str]:
        """The keys of all blobs under a folder."""
        for entry in self.entries(folder):
            yield entry.key

    def size_of(self, folder: str) -> int:
        """Bytes of all blobs under a folder."""
        return sum(entry.size for entry in self.entries(folder))

    def write(self, key: str, data: bytes) -> None:
        """Create a blob from bytes."""
        with self.create(key) as file:
            file.write(data)

    def read(self, key: str, sha256: str | None = None) -> bytes:
        """The whole blob; CorruptError if it does not have that hash."""
        with self.open(key) as file:
            return self._verified(key, file.read(), sha256)

    def _verified(self, key: str, data: bytes, sha256: str | None) -> bytes:
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise CorruptError(f"{key.rsplit('/', 1)[-1]} has been changed since it was written")
        return data

    def delete_folder(self, folder: str, keep: Sequence[str] = ()) -> None:
        """Remove every blob under a folder, except those that are, or lie under, a name in `keep`."""
        for key in list(self.list(folder)):
            if not is_kept(key, keep):
                self.delete(key)


def checked_key(key: str) -> str:
    """`key` if it is one that layout.py could have made."""
    if _KEY.match(key) is None or len(key) > 200:
        raise StoreError("this is not the name of a blob")
    return key


def is_kept(key: str, keep: Sequence[str]) -> bool:
    return any(key == name or key.startswith(f"{name}/") for name in keep)


def sha256_of(store: BlobStore, key: str) -> str:
    """The hash of a blob, read in blocks."""
    digest = hashlib.sha256()
    with store.open(key) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
