"""s3://: an object store through fsspec and s3fs (`pip install ehr-d3pm[s3]`). An object appears whole by itself."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from ehr.errors import StoreError
from model_store.blobs.protocol import BlobStore, checked_key


class S3Store(BlobStore):
    """Credentials and endpoint come from the usual AWS_* variables (AWS_ENDPOINT_URL for MinIO and its like)."""

    scheme = "s3"

    def __init__(self, url: str) -> None:
        import fsspec

        self.root = url.removeprefix(f"{self.scheme}://").rstrip("/")
        try:
            self.fs: Any = fsspec.filesystem(urlsplit(url).scheme)
        except ImportError as error:
            raise StoreError(f"this kind of store needs another package: {error}") from None

    @contextmanager
    def create(self, key: str) -> Iterator[BinaryIO]:
        # Written here first: an upload that breaks off must not become an object.
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            with self._translated(key), self.fs.transaction, self.fs.open(self._path(key), "wb") as target:
                while block := file.read(1 << 22):
                    target.write(block)

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        with self._translated(key):
            file = self.fs.open(self._path(key), "rb")
        with file:
            yield file

    @contextmanager
    def local_path(self, key: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "blob"
            with self._translated(key):
                self.fs.get_file(self._path(key), str(path))
            yield path

    def exists(self, key: str) -> bool:
        self.fs.invalidate_cache()
        return bool(self.fs.exists(self._path(key)))

    def list(self, folder: str) -> Iterator[str]:
        self.fs.invalidate_cache()
        try:
            found = self.fs.find(self._path(folder))
        except FileNotFoundError:
            return
        for path in found:
            yield path.lstrip("/").removeprefix(f"{self.root}/".lstrip("/"))

    def delete(self, key: str) -> None:
        with self._translated(key):
            if self.fs.exists(self._path(key)):
                self.fs.rm_file(self._path(key))

    def check(self) -> None:
        with self._translated("bucket"):
            self.fs.ls(self.root.split("/")[0])

    def _path(self, key: str) -> str:
        return f"{self.root}/{checked_key(key)}"

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise StoreError(f"{key.rsplit('/', 1)[-1]} is missing from the store") from None
        except (OSError, ConnectionError) as error:
            raise StoreError(f"the store does not answer as it should: {type(error).__name__}") from error
