"""Whether this worker is told to stop, as the processes that work learn it.

Celery's warm shutdown (SIGTERM) takes no new messages and waits for what runs, however long that is; its children are
told nothing. Here the parent sets a byte that it shares with the children it has forked, and jobs look at it where they
also look whether they were cancelled.
"""

import mmap
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stopping:
    """Made in the parent before it forks."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 1)  # anonymous and shared: a child sees what the parent writes
        self._told = False  # this process itself

    def tell_all(self) -> None:
        """By the parent, also in a signal handler: whoever works shall keep what there is and give the rest back."""
        self._shared[0] = 1

    def is_set(self) -> bool:
        return self._told or self._shared[0] == 1

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """In a child, around a task: a SIGTERM that reaches it, as one to the whole process group does, ends the
        process after the task has come to a good stop, and not in the middle of it."""
        otherwise = signal.signal(signal.SIGTERM, self._on_term)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, otherwise)
            if self._told:
                os.kill(os.getpid(), signal.SIGTERM)

    def _on_term(self, *_: Any) -> None:
        self._told = True


stopping = Stopping()
