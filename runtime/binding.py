"""Binding to an address: loopback needs nothing, any other needs API keys."""

import ipaddress
import logging

from ehr.errors import AccessError
from model_store import migrate
from model_store.database import Database
from model_store.repositories import KeyRepository
from runtime.settings import Settings

log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_binding(settings: Settings) -> bool:
    """Whether the service is closed: there is or was a key. AccessError if not and the address is not loopback."""
    database = Database(settings.resolved_database_url, pooled=False)
    try:
        migrate.check(database.engine)
        with database.read_scope() as session:
            keys = KeyRepository(session)
            is_closed = keys.any_ever()
            if is_closed and not keys.any_active():
                log.warning(
                    "every API key is revoked: closed to everyone until one is made with 'ehr-d3pm keys create'"
                )
    finally:
        database.close()
    if not is_closed and not is_loopback(settings.host):
        raise AccessError(
            f"refused to bind to {settings.host} without API keys: make one with 'ehr-d3pm keys create --owner NAME"
            f"{_where(settings)}', or bind to 127.0.0.1"
        )
    return is_closed


def _where(settings: Settings) -> str:
    return "" if settings.database_url else f" --data-dir {settings.resolved_data_dir}"
