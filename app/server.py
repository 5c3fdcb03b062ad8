"""The API as a process."""

import logging

import uvicorn

from app.main import create_app
from runtime.binding import check_binding
from runtime.logs import configure_logging
from runtime.settings import Settings

log = logging.getLogger(__name__)
STOP_SECONDS = 3  # for requests that are under way, event streams among them


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
