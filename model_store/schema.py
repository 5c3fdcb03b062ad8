"""Which schemas this version works with, so that versions can run side by side on one database while one replaces the
other. Revisions are numbers of four digits: as texts they are in order."""

from dataclasses import dataclass

from alembic.runtime.migration import MigrationContext
from sqlalchemy import Column, Connection, Engine, String, Table, inspect, select

from ehr.errors import SchemaError
from model_store.columns import Base

# The code works from this revision on: raise it with the first use of what a later one adds.
OLDEST_SCHEMA = "0009"

# One row: the earliest revision whose code works with the schema as it is. The database says so, because code that is
# older than a migration cannot know what it takes away.
support = Table("schema_support", Base.metadata, Column("oldest_code", String(32), primary_key=True))


@dataclass(frozen=True)
class Schema:
    """What the database has: its revision, and the earliest code that it serves."""

    revision: str | None
    oldest_code: str | None

    @classmethod
    def of(cls, connection: Connection) -> "Schema":
        revision = MigrationContext.configure(connection).get_current_revision()
        has_support = inspect(connection).has_table(support.name)
        return cls(revision, connection.scalar(select(support.c.oldest_code)) if has_support else revision)

    def is_too_old(self) -> bool:
        """Whether this code needs what a migration has yet to add."""
        return self.revision is None or self.revision < OLDEST_SCHEMA

    def is_too_new(self, code: str) -> bool:
        """Whether what this code needs, which knows the revisions up to `code`, has been taken away."""
        return self.oldest_code is not None and self.oldest_code > code

    def check(self, code: str) -> None:
        """SchemaError unless code that knows the revisions up to `code` can work with it."""
        if self.is_too_old():
            raise SchemaError(
                f"the database's schema is {self.revision or 'empty'}, but at least {OLDEST_SCHEMA} is needed:"
                " run 'ehr-d3pm migrate'"
            )
        if self.is_too_new(code):
            raise SchemaError(
                f"the database's schema is {self.revision} and serves versions from {self.oldest_code} on, but this one"
                f" knows {code}: start a newer version"
            )


def schema_of(engine: Engine) -> Schema:
    with engine.connect() as connection:
        return Schema.of(connection)
