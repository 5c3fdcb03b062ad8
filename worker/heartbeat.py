"""The threads that keep a lease and listen for a request to stop, while another thread works."""

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.exc import InterfaceError, OperationalError

from ehr.errors import JobCancelledError, LeaseLostError, TimeLimitError, TurnOverError, WorkerStoppingError
from runtime.logs import place_of
from runtime.settings import Settings
from worker.stopping import stopping

log = logging.getLogger(__name__)
DATABASE_AWAY = (OperationalError, InterfaceError)
OVERTIME = "the job has run for as long as a job may (JOB_SECONDS)"
LAST_WORD_SECONDS = 5.0  # then a process that must end does so, whether or not the database has heard of it


@dataclass
class StopSignal:
    """Raised by the heartbeat, by the clock or by whoever stops the worker; seen by the working thread."""

    cancelled: threading.Event = field(default_factory=threading.Event)
    lost: threading.Event = field(default_factory=threading.Event)
    overtime: threading.Event = field(default_factory=threading.Event)  # it has run for as long as a job may
    # Somebody else is next. Not a reason to stop at any moment: whoever can go on later looks at it where it can.
    turn_over: threading.Event = field(default_factory=threading.Event)
    # By this process's monotonic clock. Past it somebody else may be at work on the same; a heartbeat that hears
    # nothing from the database cannot tell, so the clock does.
    lease_ends_at: float = math.inf

    @property
    def is_lost(self) -> bool:
        return self.lost.is_set() or time.monotonic() > self.lease_ends_at

    def is_up(self) -> bool:
        return self.cancelled.is_set() or self.overtime.is_set() or self.is_lost or stopping.is_set()

    def check(self) -> None:
        """Raise if the work is no longer wanted, or not here."""
        if self.is_lost:
            raise LeaseLostError("another attempt has taken over this job, or may have")
        if self.cancelled.is_set():
            raise JobCancelledError("the job was asked to stop")
        if self.overtime.is_set():
            raise TimeLimitError(OVERTIME)
        if stopping.is_set():
            raise WorkerStoppingError("this worker is told to stop")

    def check_turn(self) -> None:
        """Raise if it is somebody else's turn; to be called where the work can be gone on with later."""
        if self.turn_over.is_set():
            raise TurnOverError("it is somebody else's turn")


class Heartbeat:
    """Beats while its `with` block runs. Work that does not stop by itself in time is ended by force, process and all:
    a long call into a library cannot be interrupted in any other way."""

    def __init__(
        self, settings: Settings, signal: StopSignal, beat: Callable[[], bool], end_by_force: Callable[[], None] | None
    ) -> None:
        """`beat` renews the lease and is True when someone asked to stop, or raises LeaseLostError; `end_by_force`
        writes what must be written before the process ends. None: late work is someone else's concern."""
        self._settings, self._signal, self._beat, self._force = settings, signal, beat, end_by_force
        self._finished = threading.Event()
        self._stop_asked_at: float | None = None
        # The one that watches must not wait for a database, and the one that beats may.
        tasks = [self._keep_lease] if end_by_force is None else [self._keep_lease, self._watch]
        self._threads = [threading.Thread(target=task, name="heartbeat", daemon=True) for task in tasks]

    def __enter__(self) -> None:
        self._signal.lease_ends_at = time.monotonic() + self._settings.lease_seconds
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        for thread in self._threads:
            thread.join(timeout=30)

    def _keep_lease(self) -> None:
        while not self._finished.wait(self._settings.heartbeat_seconds):
            asked_at = time.monotonic()
            try:
                if self._beat():
                    self._signal.cancelled.set()
                self._signal.lease_ends_at = asked_at + self._settings.lease_seconds
            except LeaseLostError:
                self._signal.lost.set()
                return
            except DATABASE_AWAY as error:
                log.warning("the lease was not renewed", extra={"type": type(error).__name__})
            except Exception as error:
                log.error("heartbeat failed", extra={"type": type(error).__name__, "at": place_of(error)})

    def _watch(self) -> None:
        while not self._finished.wait(min(self._settings.heartbeat_seconds, 1.0)):
            if self._is_late():
                self._end_by_force()

    def _is_late(self) -> bool:
        if not self._signal.is_up():
            self._stop_asked_at = None  # the database was away and came back before the work took notice
            return False
        now = time.monotonic()
        self._stop_asked_at = self._stop_asked_at or now
        only_moves = not (self._signal.is_lost or self._signal.cancelled.is_set() or self._signal.overtime.is_set())
        grace = self._settings.stop_seconds if only_moves else self._settings.cancel_grace_seconds
        return now - self._stop_asked_at >= grace and not self._finished.is_set()

    def _end_by_force(self) -> None:
        log.warning("work that did not stop is ended by force")
        last_word = threading.Thread(target=self._force, daemon=True)
        last_word.start()
        last_word.join(LAST_WORD_SECONDS)
        os._exit(1)
