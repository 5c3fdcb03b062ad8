"""Tests run side by side in as many processes as the machine has cores: each of them, and what it starts, computes with
one thread, because threads that share a core wait for each other at every step."""

import os
from functools import cache

import httpx._transports.default as transports
import pytest
from hypothesis import HealthCheck, settings

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MKL_NUM_THREADS", "1")

# after the threads are settled, and here: a session's fixture that is imported elsewhere is another fixture
from tests.service.fixtures import (
    database_url,
    new_url,
    postgres,
    postgres_stand,
    shared_stand,
    sqlite_stand,
    stand,
    stand_of,
)

__all__ = [
    "database_url",
    "new_url",
    "postgres",
    "postgres_stand",
    "shared_stand",
    "sqlite_stand",
    "stand",
    "stand_of",
]

# Files are dealt to the processes one at a time: those that start servers and train come first, so that the last are
# short and all processes end together.
LONGEST_FIRST = ("tests", "tests/service", "tests/api", "tests/browser", "tests/engine", "tests/formats")

# examples are few and small; how long one takes is up to what else the machine does
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

# every HTTP client reads all certificates of the machine, which takes longer than what most of them are made for here
transports.create_ssl_context = cache(transports.create_ssl_context)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A folder that is not named comes before all others."""
    folders = {folder: place for place, folder in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: folders.get(item.nodeid.partition("::")[0].rpartition("/")[0], -1))
