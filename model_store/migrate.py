"""Bring the schema to where this version needs it, once, however many processes start at the same time."""

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text
from sqlalchemy.engine import make_url

from ehr.errors import SchemaError
from model_store.database import open_engine
from model_store.schema import Schema, schema_of
from model_store.timeouts import UNHURRIED

LOCK = 7_202_611  # any number, the same in every process


def upgrade(url: str, revision: str = "head") -> None:
    """Upgrade to `revision`; does nothing if it is already there, or if a later version has been here."""

    def action(config: Config) -> None:
        found = Schema.of(config.attributes["connection"]).revision
        if found is None or found <= head():
            command.upgrade(config, revision)

    _run(url, action)


def downgrade(url: str, revision: str) -> None:
    """Go back to `revision`; `base` is an empty database."""
    _run(url, lambda config: command.downgrade(config, revision))


def head() -> str:
    """The newest revision this version knows."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    if found is None:
        raise SchemaError("there are no migrations")
    return found


def check(engine: Engine) -> None:
    """SchemaError unless the database has a schema this version can work with."""
    schema_of(engine).check(head())


def _run(url: str, action: Callable[[Config], None]) -> None:
    if make_url(url).get_backend_name() == "sqlite" and (path := make_url(url).database):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    engine = open_engine(url, pooled=False, timeouts=UNHURRIED)
    try:
        # One transaction around everything, begun under a lock: whoever waited finds the work done.
        with engine.begin() as connection:
            _lock(connection)
            config = _config()
            config.attributes["connection"] = connection
            action(config)
    finally:
        engine.dispose()


def _lock(connection: Connection) -> None:
    # SQLite's BEGIN IMMEDIATE (see database.py) is a lock already; Postgres needs one that ends with the transaction.
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config
