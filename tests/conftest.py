"""Tests run side by side in as many processes as the machine has cores: each of them, and what it starts, computes with
one thread, because threads that share a core wait for each other at every step."""

import os
from functools import cache

import httpx._transports.default as transports
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

# examples are few and small; how long one takes is up to what else the machine does
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

# every HTTP client reads all certificates of the machine, which takes longer than what most of them are made for here
transports.create_ssl_context = cache(transports.create_ssl_context)
