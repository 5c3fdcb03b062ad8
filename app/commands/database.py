"""The database, for commands that work on it without a service in between: whoever may run them is trusted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ehr_d3pm.cli.output import Exit, fail
from runtime.command_options import settings_with

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

DataDir = Annotated[
    Path | None, typer.Option(help="the service's data folder, as `serve` prints it [default: ./ehr-d3pm-data]")
]


@contextmanager
def database_session(data_dir: Path | None = None) -> Iterator["Session"]:
    """One unit of work on the database of DATABASE_URL, or of the data folder; never on one that was not there before:
    a key in a second database opens nothing."""
    from model_store import migrate
    from model_store.database import Database
    from runtime.private_files import keep_private

    settings = settings_with(data_dir=data_dir)
    file = settings.resolved_data_dir / "ehr-d3pm.sqlite"
    if settings.database_url == "" and not file.exists():
        fail(
            f"there is no database in {settings.resolved_data_dir}: name the service's data folder with --data-dir; "
            "'ehr-d3pm migrate --data-dir FOLDER' makes one for a service that never ran",
            Exit.USAGE,
        )
    keep_private(settings.resolved_data_dir)
    migrate.upgrade(settings.resolved_database_url)
    database = Database(settings.resolved_database_url)
    try:
        with database.session_scope() as session:
            yield session
    finally:
        database.close()
