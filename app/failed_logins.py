"""Keys that are tried out. Keys have 256 random bits, so guessing is hopeless; but every try costs a look into the
database and a row of the audit trail, and somebody who tries is worth slowing down.

By address, in this process. Whoever came with a valid key before is let through: behind a proxy that hides addresses,
one sender with wrong keys must not shut the others out.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from ehr.errors import TooManyFailuresError

WINDOW_SECONDS = 60.0
MOST_REMEMBERED = 10_000  # addresses, and keys that were valid


class FailedLogins:
    """Of this process."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`most` failures of one address in a minute are answered; then none, until the minute is over."""
        self._most, self._clock, self._lock = most, clock, threading.Lock()
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when the minute began, and how many since
        self._valid: OrderedDict[bytes, None] = OrderedDict()

    def check(self, address: str, secret: str) -> None:
        """TooManyFailuresError if this address must wait before its next key is looked at."""
        with self._lock:
            began, count = self._failures.get(address, (0.0, 0))
            left = began + WINDOW_SECONDS - self._clock()
            if count >= self._most and left > 0 and _digest(secret) not in self._valid:
                raise TooManyFailuresError("too many requests came from here with keys that are not valid", left)

    def failed(self, address: str) -> None:
        with self._lock:
            began, count = self._failures.get(address, (-WINDOW_SECONDS, 0))
            is_over = self._clock() - began >= WINDOW_SECONDS
            self._failures[address] = (self._clock(), 1) if is_over else (began, count + 1)
            self._failures.move_to_end(address)
            if len(self._failures) > MOST_REMEMBERED:
                self._failures.popitem(last=False)

    def worked(self, secret: str) -> None:
        with self._lock:
            self._valid[_digest(secret)] = None
            self._valid.move_to_end(_digest(secret))
            if len(self._valid) > MOST_REMEMBERED:
                self._valid.popitem(last=False)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
