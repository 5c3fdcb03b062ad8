"""file://: a folder. Written under a temporary name, synced, given its own, and the folder synced: whole or absent."""

import errno
import filecmp
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from ehr.errors import StoreError, StoreFullError
from model_store.blobs.protocol import BlobStore, Entry, checked_key, is_kept

# no space, over quota, larger than this process may write
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# what file systems say that have no hard links; there the layout alone keeps two writers from one name
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
TEMPORARY = ".tmp-"


class FileStore(BlobStore):
    scheme = "file"

    def __init__(self, url: str, scratch: Path | None = None) -> None:
        self.root = Path(unquote(urlsplit(url).path))

    @contextmanager
    def create(self, key: str) -> Iterator[BinaryIO]:
        path = self._path(key)
        temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        try:
            with _opened(temporary) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _name(temporary, path)
            _sync_folder(path.parent)
        except OSError as error:
            if error.errno in FULL:
                raise StoreFullError("there is no room left in the store") from None
            raise StoreError(f"the store cannot be written: {os.strerror(error.errno or 0)}") from error
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        with self.local_path(key) as path, path.open("rb") as file:
            yield file

    @contextmanager
    def local_path(self, key: str) -> Iterator[Path]:
        path = self._path(key)
        if not path.is_file():
            raise StoreError(f"{path.name} is missing from the store")
        yield path

    def exists(self, key: str) -> bool:
        return self._path(key).is_file()

    def entries(self, folder: str) -> Iterator[Entry]:
        for path in self._path(folder).rglob("*"):
            with suppress(FileNotFoundError):  # it may go away meanwhile
                if not path.name.startswith(TEMPORARY) and S_ISREG((found := path.stat()).st_mode):
                    yield Entry(self._key(path), found.st_size, found.st_mtime)

    def delete(self, key: str) -> None:
        path = self._path(key)
        path.unlink(missing_ok=True)
        self._remove_empty_parents(path)

    def delete_folder(self, folder: str, keep: Sequence[str] = ()) -> None:
        if not keep:
            # also what a killed process left under temporary names
            path = self._path(folder)
            shutil.rmtree(path, ignore_errors=True)  # it may not be there, or go away meanwhile
            if path.exists():
                raise StoreError(f"{path.name} could not be removed from the store")
            self._remove_empty_parents(path)
            return
        super().delete_folder(folder, keep)
        for path in self._path(folder).rglob(f"{TEMPORARY}*"):
            if not is_kept(self._key(path), keep):  # what stays may be written to at this moment
                path.unlink(missing_ok=True)

    def check(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the store cannot be written: {os.strerror(error.errno or 0)}") from error
        if not os.access(self.root, os.W_OK):
            raise StoreError("the store cannot be written")

    def _path(self, key: str) -> Path:
        return self.root / checked_key(key)

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _remove_empty_parents(self, path: Path) -> None:
        # two levels below the root at most stay: uploads/, models/, ...
        with suppress(OSError):  # not empty: the rule, not the exception
            for parent in path.parents:
                if parent == self.root or parent.parent == self.root:
                    return
                parent.rmdir()


def _opened(path: Path) -> BinaryIO:
    """A new file in a folder that another process may just be removing because it is empty."""
    for _ in range(10):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return path.open("xb")
    return path.open("xb")


def _name(temporary: Path, path: Path) -> None:
    """Give a file its name, if no other has it. A name that is taken is no error if the contents are the same."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        if not filecmp.cmp(temporary, path, shallow=False):
            raise StoreError(f"{path.name} is in the store with other contents") from None
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        temporary.rename(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
