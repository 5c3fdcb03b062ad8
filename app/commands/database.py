"""The database, for commands that work on it: whoever may run them is trusted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runtime.command_options import settings_with

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


@contextmanager
def database_session() -> Iterator["Session"]:
    """One transaction on the database of DATABASE_URL or DATA_DIR, whose schema is brought up to date first."""
    from model_store import migrate
    from model_store.database import Database

    url = settings_with().resolved_database_url
    migrate.upgrade(url)
    database = Database(url)
    try:
        with database.session_scope() as session:
            yield session
    finally:
        database.close()
