"""A backend of a few lines: what the contract asks for and nothing else."""

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ehr.errors import StoreError
from model_store.blobs import BlobStore
from model_store.blobs.protocol import Entry, checked_key


class MemoryStore(BlobStore):
    scheme = "memory"

    def __init__(self, url: str, scratch: Path | None = None) -> None:
        self.blobs: dict[str, bytes] = {}

    @contextmanager
    def create(self, key: str) -> Iterator[BinaryIO]:
        file = io.BytesIO()
        checked_key(key)
        yield file
        if self.blobs.setdefault(key, file.getvalue()) != file.getvalue():
            raise StoreError("it is in the store with other contents")

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        if not self.exists(key):
            raise StoreError("it is missing from the store")
        yield io.BytesIO(self.blobs[key])

    @contextmanager
    def local_path(self, key: str) -> Iterator[Path]:
        with self.open(key) as blob, tempfile.NamedTemporaryFile() as file:
            file.write(blob.read())
            file.flush()
            yield Path(file.name)

    def exists(self, key: str) -> bool:
        return checked_key(key) in self.blobs

    def entries(self, folder: str) -> Iterator[Entry]:
        yield from [Entry(key, len(data), 0.0) for key, data in self.blobs.items() if key.startswith(f"{folder}/")]

    def delete(self, key: str) -> None:
        self.blobs.pop(checked_key(key), None)

    def check(self) -> None: ...
