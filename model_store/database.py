"""Connections and units of work. One request or task is one transaction; repositories never commit."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, Pool, QueuePool, create_engine, event
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from model_store.timeouts import Timeouts

SQLITE_BUSY_SECONDS = 30
READ_ONLY = "25006"  # Postgres' word for: cannot execute this in a read-only transaction


def open_engine(url: str, *, pooled: bool = True, timeouts: Timeouts | None = None) -> Engine:
    """An engine for SQLite (WAL) or Postgres. `pooled=False` opens a connection for every unit of work, which is what a
    process that forks needs: no connection may be shared between parent and child."""
    pool: type[Pool] = QueuePool if pooled else NullPool
    options: dict[str, Any] = {"poolclass": pool}
    if pooled:
        options |= {"pool_size": 10, "max_overflow": 30, "pool_pre_ping": True}
    if make_url(url).get_backend_name() == "sqlite":
        engine = create_engine(
            url, connect_args={"timeout": SQLITE_BUSY_SECONDS, "check_same_thread": False}, **options
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    asked = make_url(url).query  # what the address says of these holds
    arguments = (timeouts or Timeouts()).connect_args()
    both = " ".join([arguments.get("options", ""), str(asked.get("options", ""))]).strip()
    arguments = {name: value for name, value in arguments.items() if name not in asked}
    engine = create_engine(url, connect_args=arguments | ({"options": both} if both else {}), **options)
    event.listen(engine, "handle_error", _read_only_is_away)
    event.listen(engine, "checkin", _server_decides)
    return engine


def _server_decides(connection: Any, _record: Any) -> None:
    """Whether the next transaction may write: after one that only read, SQLAlchemy would insist that it may, whatever
    an operator has set for the server."""
    if connection is not None and not connection.closed:
        connection.read_only = None


def _read_only_is_away(context: ExceptionContext) -> Exception | None:
    """A server that takes no writes was the primary before a failover, or is not it yet: as good as away. Connections
    to it are given up, so that the next ones find the new primary."""
    if getattr(context.original_exception, "sqlstate", None) != READ_ONLY:
        return None
    context.is_disconnect = True
    return OperationalError(context.statement, context.parameters, context.original_exception)


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions by itself; _begin_sqlite does
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that will write takes the lock at once: one that turns from reading to writing can fail as busy.
    kind = "DEFERRED" if connection.get_execution_options().get("read_only", False) else "IMMEDIATE"
    connection.exec_driver_sql(f"BEGIN {kind}")


class Database:
    """Gives out sessions. `with database.session_scope() as session:` is one unit of work."""

    def __init__(self, url: str, *, pooled: bool = True, timeouts: Timeouts | None = None) -> None:
        self.url = url
        self.engine = open_engine(url, pooled=pooled, timeouts=timeouts)

    @contextmanager
    def session_scope(self) -> Iterator[Session]:
        """A transaction that may write: committed at the end, rolled back when anything is raised."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def read_scope(self) -> Iterator[Session]:
        """A transaction that only reads; on SQLite it waits for no writer."""
        with Session(self.engine, expire_on_commit=False) as session:
            options: dict[str, Any] = {"read_only": True}
            if self.engine.dialect.name == "postgresql":
                options = {"postgresql_readonly": True}
            session.connection(execution_options=options)
            yield session
            session.expunge_all()  # a rollback would empty the rows that were read; they stay usable after the block
            session.rollback()

    def close(self) -> None:
        """Give all connections back to the system."""
        self.engine.dispose()
