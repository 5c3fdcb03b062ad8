"""Run the API, and bring its database up to date."""

import logging
import os
import sys

from ehr.errors import EhrError
from ehr_d3pm.cli.output import errors_as_exit_codes, say
from runtime.command_options import DataDir, Host, LogLevel, Port, settings_with

log = logging.getLogger(__name__)
STOP_SECONDS = 3  # for requests that are under way, event streams among them


@errors_as_exit_codes(EhrError)
def api(data_dir: DataDir = None, host: Host = None, port: Port = None, log_level: LogLevel = None) -> None:
    """Run the API alone.

    Workers, database, broker and store are elsewhere (DATABASE_URL, REDIS_URL, STORE_URL).
    """
    import uvicorn

    from app.main import create_app
    from runtime.binding import check_binding
    from runtime.logs import configure_logging
    from runtime.private_files import keep_private

    level = None if log_level is None else log_level.upper()
    settings = settings_with(data_dir=data_dir, host=host, port=port, log_level=level)
    configure_logging(settings.log_level)
    keep_private(settings.resolved_data_dir)
    if not check_binding(settings):
        log.warning("no API key is configured: open to everyone on this machine")
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,  # the application writes its own, without raw paths
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    _end()


def _end() -> None:
    """Without waiting for threads. By now everything that can be closed is, and a thread that is left waits for a
    database that is silent, or an address that takes no message. A process that began by itself ends by SIGTERM before
    this; the first of a container, to which that signal does nothing by default, and one that got Ctrl-C, do not."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


@errors_as_exit_codes(EhrError)
def migrate(data_dir: DataDir = None) -> None:
    """Bring the database's schema to where this version needs it."""
    from model_store import migrate as migrations
    from runtime.private_files import keep_private

    settings = settings_with(data_dir=data_dir)
    keep_private(settings.resolved_data_dir)
    migrations.upgrade(settings.resolved_database_url)
    say(f"the schema is at {migrations.head()}")
