"""Waiting for a database that is away: a failover or a restart is nobody's fault, and over in seconds or minutes."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from sqlalchemy.orm import Session

from worker.heartbeat import DATABASE_AWAY

T = TypeVar("T")
DATABASE_PATIENCE_SECONDS = 300


def patiently(scope: Callable[[], AbstractContextManager[Session]], work: Callable[[Session], T]) -> T:
    """Do a unit of work in a session of `scope`; while the database is away, wait and try again."""
    deadline = time.monotonic() + DATABASE_PATIENCE_SECONDS
    while True:
        try:
            with scope() as session:
                return work(session)
        except DATABASE_AWAY:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
