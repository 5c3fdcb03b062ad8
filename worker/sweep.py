"""`python -m worker.sweep`: the sweeper of a worker, in a process of its own that ends with the worker.

Not a thread of the Celery parent: that process forks, and a child forked while another thread holds one of SQLite's
mutexes waits for it for ever.
"""

import logging
import os
import signal
import subprocess
import sys
import time

from model_store.settings import get_settings
from model_store.sweeper import Sweeper
from worker.contract import ROUTES
from worker.logs import configure_logging
from worker.processes import die_with_parent
from worker.runtime import open_runtime

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
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
