"""What has been fetched for a job: files in the store, bounded like an upload."""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import BinaryIO

from ehr.errors import ComeBackError, DataError, OutsideError, TooLargeError
from model_store.layout import fetched_blob
from model_store.repositories import OwnerRepository
from worker.execution import JobRun

MOST_FILES = 1000
LOOK_SECONDS = 0.2  # while somebody is waited for, the job can be cancelled
HELD_SECONDS = 20.0  # whoever has to wait longer lets others have the worker
BEGUN = "begun"


@dataclass(frozen=True)
class FetchedFile:
    blob: str
    size: int
    label: str


@dataclass
class Basket:
    run: JobRun
    fetch_id: str
    files: list[FetchedFile] = field(default_factory=list)
    size: int = 0

    def expect(self, n_files: int, n_bytes: int) -> None:
        """How much there is to fetch, as far as it is known; refused now if it is too much."""
        if n_files == 0:
            raise DataError("there are no files to read at the source")
        if n_files > MOST_FILES:
            raise TooLargeError(f"the source has {n_files:,} files; a dataset is made from at most {MOST_FILES:,}")
        self._check(n_bytes)
        self.run.progress.step("fetch", max(n_bytes, 1), unit="bytes")

    def put(self, name: str, label: str, blocks: Iterable[bytes]) -> None:
        """Fetch a file; `name` tells the same file in every attempt."""

        def write(file: BinaryIO) -> None:
            for block in blocks:
                file.write(block)

        self.write(name, label, write)

    def write(self, name: str, label: str, write: Callable[[BinaryIO], None]) -> None:
        """The same for whoever wants a file to write to."""
        self.run.check()
        blob, store = fetched_blob(self.fetch_id, name), self.run.runtime.store
        if not store.exists(blob):
            with ExitStack() as stack:
                write(Counted(stack.enter_context(store.create(blob)), self._arrived))  # type: ignore[arg-type]
        with store.open(blob) as file:
            size = file.seek(0, 2)
        self.size += size
        self._check(self.size)
        with self.run.runtime.database.session_scope() as session:
            limits = self.run.runtime.settings.limits
            OwnerRepository(session).check_room(self.run.claim.owner, limits, self.size)
        self.run.progress.advance(self.size)
        self.files.append(FetchedFile(blob, size, label[-200:]))

    def empty(self) -> None:
        """What was fetched so far does not count."""
        self.files, self.size = [], 0

    def note(self, name: str, data: bytes) -> None:
        """Something the next attempt must know."""
        self.run.runtime.store.write(fetched_blob(self.fetch_id, name), data)

    def noted(self, name: str) -> bytes | None:
        blob, store = fetched_blob(self.fetch_id, name), self.run.runtime.store
        return store.read(blob) if store.exists(blob) else None

    def pause(self, seconds: float) -> None:
        """Wait; for longer than a moment, the job gives its worker away and comes back."""
        if seconds > HELD_SECONDS:
            self._check_patience()
            raise ComeBackError("the source is not ready yet", seconds)
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            self.run.check()
            time.sleep(min(left, LOOK_SECONDS))

    def _check_patience(self) -> None:
        """Time in which a job only waits counts for nobody, so it has an end of its own."""
        begun, longest = self.noted(BEGUN), self.run.runtime.settings.job_seconds
        if begun is None:
            self.note(BEGUN, str(time.time()).encode())
        elif time.time() - float(begun) > longest:
            raise OutsideError(f"the source was not ready after {longest / 3600:.1f} hours (JOB_SECONDS)")

    def _arrived(self, n: int) -> None:
        self.run.check()
        self._check(self.size + n)
        self.run.progress.advance(self.size + n)

    def _check(self, n_bytes: int) -> None:
        most = self.run.runtime.settings.max_upload_bytes
        if n_bytes > most:
            raise TooLargeError(f"the source has more than {most:,} bytes (MAX_UPLOAD_BYTES)")


class Counted:
    """A file to write to, and somebody who hears how much was written."""

    def __init__(self, file: BinaryIO, on_write: Callable[[int], None]) -> None:
        self._file, self._on_write, self._written = file, on_write, 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self._written += len(data)
        self._on_write(self._written)
        return len(data)

    def tell(self) -> int:
        return self._written

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None: ...

    def close(self) -> None: ...
