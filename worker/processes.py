"""Processes that end with their parent, however it ends."""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(number: int, parent: int) -> None:
    """Have the kernel send this process a signal when its parent is gone, or do so at once if it is gone already.
    Linux only; elsewhere it does nothing."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
