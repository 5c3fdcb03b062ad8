"""`python -m worker.sweep`: the sweeper of a worker, in a process of its own that ends with the worker.

Not a thread of the Celery parent: that process forks, and a child forked while another thread holds one of SQLite's
mutexes waits for it for ever.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

from runtime.broker import PRESENCE_SECONDS, BrokerError, WorkerFacts
from runtime.logs import configure_logging
from runtime.settings import Settings, get_settings
from runtime.sweeper import Sweeper
from runtime.webhooks import WebhookSender
from worker.contract import QUEUES, ROUTES
from worker.heartbeat import DATABASE_AWAY
from worker.memory_kills import MemoryKills
from worker.processes import die_with_parent
from worker.runtime import open_runtime
from worker.threads import available_cores

log = logging.getLogger(__name__)


class SweeperProcess:
    """Started by the Celery parent, and again whenever it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        parent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worker.sweep"],
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main() -> None:
    settings = get_settings()
    configure_logging(settings.log_level)
    opened = open_runtime(settings)
    Sweeper(opened.database, opened.broker, opened.store, ROUTES, settings).start()
    WebhookSender(opened.database, settings.webhooks_private, settings.sweep_seconds).start()
    facts = worker_facts(settings)
    memory_kills, announces_at = MemoryKills(opened.database, facts.host), 0.0
    while True:
        if time.monotonic() >= announces_at:
            announces_at = time.monotonic() + PRESENCE_SECONDS / 3
            with suppress(BrokerError):  # nobody knows of this worker for a while; it works all the same
                opened.broker.announce(facts)
        with suppress(*DATABASE_AWAY):  # it is looked for again
            for job_id in memory_kills.look():
                log.warning("a job was ended by the system: out of memory", extra={"job_id": job_id})
        time.sleep(settings.sweep_seconds)


def worker_facts(settings: Settings) -> WorkerFacts:
    """Of the worker this sweeper belongs to; estimates of how long a cohort takes count the workers."""
    host = socket.gethostname()[:60]
    slots = settings.worker_concurrency if QUEUES["generate"] in settings.worker_queues.split(",") else 0
    return WorkerFacts(f"{host}:{os.getppid()}", host, slots, available_cores())


if __name__ == "__main__":
    main()
