"""The thread that keeps a lease and listens for a request to stop, while another thread works."""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.exc import InterfaceError, OperationalError

from ehr.errors import JobCancelledError, LeaseLostError
from runtime.logs import place_of
from runtime.settings import Settings

log = logging.getLogger(__name__)
DATABASE_AWAY = (OperationalError, InterfaceError)


@dataclass(frozen=True)
class StopSignal:
    """Raised by the heartbeat, seen by the working thread."""

    cancelled: threading.Event = field(default_factory=threading.Event)
    lost: threading.Event = field(default_factory=threading.Event)

    def is_up(self) -> bool:
        return self.cancelled.is_set() or self.lost.is_set()

    def check(self) -> None:
        """Raise if the work is no longer wanted."""
        if self.lost.is_set():
            raise LeaseLostError("another attempt has taken over this job")
        if self.cancelled.is_set():
            raise JobCancelledError("the job was asked to stop")


class Heartbeat(threading.Thread):
    """Beats while its `with` block runs. Work that does not stop by itself in time is ended by force, process and all:
    a long call into a library cannot be interrupted in any other way."""

    def __init__(
        self, settings: Settings, signal: StopSignal, beat: Callable[[], bool], end_by_force: Callable[[], None] | None
    ) -> None:
        """`beat` renews the lease and is True when someone asked to stop, or raises LeaseLostError; `end_by_force`
        writes what must be written before the process ends. None: late work is someone else's concern."""
        super().__init__(name="heartbeat", daemon=True)
        self._settings, self._signal, self._beat, self._force = settings, signal, beat, end_by_force
        self._finished = threading.Event()
        self._stop_asked_at: float | None = None

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        self.join(timeout=30)

    def run(self) -> None:
        while not self._finished.wait(self._settings.heartbeat_seconds):
            try:
                self._listen()
                self._end_if_late()
            except DATABASE_AWAY:
                continue  # the lease may run out, but as long as nobody has taken the job it is ours
            except Exception as error:
                log.error("heartbeat failed", extra={"type": type(error).__name__, "at": place_of(error)})

    def _listen(self) -> None:
        if not self._signal.lost.is_set():
            try:
                if self._beat():
                    self._signal.cancelled.set()
            except LeaseLostError:
                self._signal.lost.set()
        if self._signal.is_up() and self._stop_asked_at is None:
            self._stop_asked_at = time.monotonic()

    def _end_if_late(self) -> None:
        if (
            self._force is None
            or self._stop_asked_at is None
            or time.monotonic() - self._stop_asked_at < self._settings.cancel_grace_seconds
        ):
            return
        if not self._finished.is_set():  # else the work has just come to its end
            log.warning("work that did not stop is ended by force")
            self._force()
            os._exit(1)
