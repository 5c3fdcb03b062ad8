"""`python -m worker`: one Celery worker (prefork) on the queues of WORKER_QUEUES."""

import logging
import sys

from runtime.logs import configure_logging
from runtime.settings import get_settings


def worker_arguments() -> list[str]:
    """Gossip, mingle and heartbeats are for clusters that talk through the broker; ours talks through the database."""
    settings = get_settings()
    return [
        "worker",
        "--pool=prefork",
        f"--concurrency={settings.worker_concurrency}",
        f"--queues={settings.worker_queues}",
        "--without-gossip",
        "--without-mingle",
        "--without-heartbeat",
        f"--loglevel={settings.log_level}",
    ]


def main() -> None:
    configure_logging(get_settings().log_level)
    from worker.celery_app import celery_app

    logging.getLogger(__name__).info("worker starts", extra={"queues": get_settings().worker_queues})
    sys.exit(celery_app.worker_main(worker_arguments()))


if __name__ == "__main__":
    main()
