"""Binding to an address: loopback needs nothing, any other needs API keys."""

import logging

import uvicorn

from app.access import is_loopback
from app.main import create_app
from ehr.errors import AccessError
from model_store import migrate
from model_store.database import Database
from model_store.repositories import KeyRepository
from runtime.logs import configure_logging
from runtime.settings import Settings

log = logging.getLogger(__name__)
STOP_SECONDS = 3  # for requests that are under way, event streams among them


def check_binding(settings: Settings) -> bool:
    """Whether keys are configured; AccessError if there are none and the address is not loopback."""
    database = Database(settings.resolved_database_url, pooled=False)
    try:
        migrate.check(database.engine)
        with database.read_scope() as session:
            has_keys = KeyRepository(session).any_active()
    finally:
        database.close()
    if not has_keys and not is_loopback(settings.host):
        raise AccessError(
            f"refused to bind to {settings.host} without API keys: make one with 'ehr-d3pm keys create --owner NAME',"
            " or bind to 127.0.0.1"
        )
    return has_keys


def run_api(settings: Settings) -> None:
    """Serve HTTP until told to stop."""
    configure_logging(settings.log_level)
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
