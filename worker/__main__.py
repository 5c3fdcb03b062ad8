"""`python -m worker`: one Celery worker (prefork) on the queues of WORKER_QUEUES."""

import logging
import sys
import time

from runtime.logs import configure_logging
from runtime.private_files import keep_private
from runtime.settings import Settings, get_settings
from worker.threads import take_share

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0


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


def wait_for_schema(settings: Settings) -> None:
    """Until the database has a schema that this version works with; SchemaError if it will not or does not in time.

    A migration may still be under way, and a database may start later than its workers. A schema that is too new does
    not become older.
    """
    from ehr.errors import SchemaError
    from model_store import migrate
    from model_store.database import Database
    from model_store.schema import schema_of
    from worker.heartbeat import DATABASE_AWAY

    database = Database(settings.resolved_database_url, pooled=False)  # nothing stays open when the worker forks
    deadline = time.monotonic() + settings.schema_wait_seconds
    try:
        while True:
            try:
                found = schema_of(database.engine)
                found.check(migrate.head())
                return
            except SchemaError as error:
                if found.is_too_new(migrate.head()) or time.monotonic() > deadline:
                    raise
                log.warning("the worker waits for migrations: %s", error)
            except DATABASE_AWAY as error:
                log.warning("the worker waits for the database", extra={"type": type(error).__name__})
            time.sleep(LOOK_SECONDS)
    finally:
        database.close()


def main() -> None:
    settings = get_settings()
    configure_logging(settings.log_level)
    keep_private(settings.resolved_data_dir)
    take_share(settings.worker_concurrency, settings.worker_threads)  # before anything that computes is imported
    from ehr.errors import SchemaError

    try:
        wait_for_schema(settings)
    except SchemaError as error:
        log.error("the worker does not start: %s", error)
        sys.exit(1)
    from worker.celery_app import celery_app

    log.info("worker starts", extra={"queues": settings.worker_queues})
    sys.exit(celery_app.worker_main(worker_arguments()))


if __name__ == "__main__":
    main()
