"""What a process needs, opened once per process: a forked child never shares its parent's connections."""

import os
from dataclasses import dataclass

from model_store.blobs import BlobStore, open_store
from model_store.database import Database
from runtime.broker import Broker
from runtime.settings import Settings, get_settings
from runtime.traces import NO_TRACES, Tracer


@dataclass(frozen=True)
class Runtime:
    settings: Settings
    database: Database
    store: BlobStore
    broker: Broker
    tracer: Tracer = NO_TRACES


_opened: dict[int, Runtime] = {}


def runtime() -> Runtime:
    """This process's runtime."""
    pid = os.getpid()
    if pid not in _opened:
        _opened.clear()
        _opened[pid] = open_runtime(get_settings())
    return _opened[pid]


def close_tracer() -> None:
    """Send what is left of this process's traces, if it has opened anything."""
    if (opened := _opened.get(os.getpid())) is not None:
        opened.tracer.close()


def open_runtime(settings: Settings) -> Runtime:
    """Connections are made on first use."""
    return Runtime(
        settings,
        Database(settings.resolved_database_url, timeouts=settings.database_timeouts),
        open_store(settings.resolved_store_url, settings.scratch_dir),
        Broker(settings.resolved_redis_url),
        settings.tracer,
    )
