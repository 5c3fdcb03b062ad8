"""Reading a file here and there is one download, however many requests it takes."""

import threading
import time

WINDOW_SECONDS = 600.0
MOST = 10_000


class RecentReads:
    """What this process has noted in the audit trail a short while ago."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window, self._seen = window_seconds, dict[tuple[str, ...], float]()
        self._lock = threading.Lock()

    def is_new(self, *what: str) -> bool:
        """Whether nothing was heard of it for a while; from now on it was."""
        moment = time.monotonic()
        with self._lock:
            is_new = moment - self._seen.get(what, -self._window) >= self._window
            if len(self._seen) >= MOST:
                self._seen = {each: at for each, at in self._seen.items() if moment - at < self._window / 2}
            if is_new:
                self._seen[what] = moment
        return is_new
