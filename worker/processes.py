"""Processes that end with their parent, however it ends."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL, expected_parent: int | None = None) -> None:
    """Have the kernel send this process a signal when its parent is gone. Linux only; elsewhere it does nothing.

    With `expected_parent`, a parent that was gone before the kernel knew is noticed too.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if expected_parent is not None and os.getppid() != expected_parent:
        os.kill(os.getpid(), number)
