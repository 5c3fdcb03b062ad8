"""The schema goes up and down on both databases, once, however many start together."""

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect

from ehr.errors import SchemaError
from model_store import migrate
from model_store.database import open_engine
from model_store.tables import Job


def test_up_and_down(database_url: str) -> None:
    engine = open_engine(database_url, pooled=False)
    with pytest.raises(SchemaError):
        migrate.check(engine)
    migrate.upgrade(database_url)
    migrate.check(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Job.metadata) == []  # the tables in code are those of the migrations
    migrate.upgrade(database_url)  # again: nothing to do
    migrate.downgrade(database_url, "base")
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    migrate.upgrade(database_url)
    migrate.check(engine)
    engine.dispose()


def test_many_starts_at_once_migrate_once(database_url: str) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            migrate.upgrade(database_url)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    engine = open_engine(database_url, pooled=False)
    migrate.check(engine)
    engine.dispose()
