"""Forms of cohorts that readers jump about in. Such a file is made whole when somebody first asks for it, kept in the
store for a day, and made again when it is asked for later: the same bytes."""

import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache

from app.openapi import VERSION
from ehr.errors import CorruptError, StoreError
from model_store.blobs import BlobStore
from model_store.blobs.protocol import sha256_of
from model_store.database import Database
from model_store.layout import form_folder
from model_store.repositories import DiscardRepository
from model_store.tables import Cohort

KEPT_SECONDS = 86_400
REMEMBERED = 1000
NOTE = "note.json"  # names the file and its hash; it is written last, so what it names is whole

Form = tuple[str, str, int]  # (blob, sha256, bytes)


class StoredForms:
    """Of this process; others find what it has made."""

    def __init__(self, database: Database, store: BlobStore) -> None:
        self._database, self._store = database, store
        self._verified = lru_cache(REMEMBERED)(self._verify)
        self._locks: dict[str, threading.Lock] = {}

    def of(self, cohort: Cohort, name: str, make: Callable[[], Iterator[bytes]]) -> Form:
        """The file `name` of a cohort, made now if it is not there."""
        folder = form_folder(cohort.job_id, f"{name}-{cohort.manifest_hash[:12]}-{VERSION}".lower())
        with self._locks.setdefault(folder, threading.Lock()):  # a reader sends many requests at a time
            if not self._store.exists(f"{folder}/{NOTE}"):
                self._make(folder, make)
            form = self._noted(folder)
            self._verified(*form)
        if len(self._locks) > REMEMBERED:
            self._locks = {}
        return form

    def _make(self, folder: str, make: Callable[[], Iterator[bytes]]) -> None:
        with self._database.session_scope() as session:
            DiscardRepository(session).add(folder, wait_seconds=KEPT_SECONDS)
        blob, digest, size = f"{folder}/{secrets.token_hex(8)}", hashlib.sha256(), 0
        with self._store.create(blob) as file:
            for block in make():
                digest.update(block)
                size += len(block)
                file.write(block)
        with suppress(StoreError):  # another process was faster: its note counts
            self._store.write(f"{folder}/{NOTE}", json.dumps([blob, digest.hexdigest(), size]).encode())

    def _noted(self, folder: str) -> Form:
        blob, sha256, size = json.loads(self._store.read(f"{folder}/{NOTE}"))
        return str(blob), str(sha256), int(size)

    def _verify(self, blob: str, sha256: str, _: int) -> None:
        if sha256_of(self._store, blob) != sha256:
            raise CorruptError("the stored form has been changed since it was written")
