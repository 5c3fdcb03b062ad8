"""A clock that goes as a test says, for that test alone."""

import threading
import time
from collections.abc import Callable

import pytest


def set_monotonic(monkeypatch: pytest.MonkeyPatch, read: Callable[[], float]) -> None:
    """`time.monotonic` is `read` for the thread that asks for this. Others go by the real one: the loop of a served
    application that noted when to look next by a clock hours ahead would sleep for hours when the test is over."""
    real, mine = time.monotonic, threading.get_ident()
    monkeypatch.setattr(time, "monotonic", lambda: read() if threading.get_ident() == mine else real())
