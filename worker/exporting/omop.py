"""Tables of the OMOP CDM 5.4 in a schema of Postgres: all of them, in one transaction, or none."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, text

from ehr.errors import ConflictError, OutsideError
from ehr.formats.cdm54 import columns, tables
from ehr.formats.write.omop_zip import cdm_tables
from ehr.formats.write.protocol import CohortSource
from ehr.references import OmopSchema
from model_store.database import open_engine
from model_store.timeouts import UNHURRIED
from runtime.places import database_place
from worker.execution import JobRun
from worker.fetching.omop import outside_database

MADE = "EHR-D3PM synthetic cohort"  # begins the comment on our tables: no others are dropped
SCHEMA = "select 1 from information_schema.schemata where schema_name = :schema"
THERE = """
select c.relname, coalesce(obj_description(c.oid, 'pg_class'), '') from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = :schema and c.relkind in ('r', 'v', 'm', 'p', 'f') and c.relname = any(:tables)
"""


def write_schema(run: JobRun, source: CohortSource, sink: OmopSchema, cohort_id: str) -> str:
    """What was written to, as `connection.schema`."""
    places, owner = run.runtime.settings.sink_places, run.claim.owner
    place = database_place(places, owner, sink.connection, {"sink.cdm_schema": sink.cdm_schema})
    run.progress.step("write", len(tables()), unit="tables")
    engine = open_engine(place.sqlalchemy_url, pooled=False, timeouts=UNHURRIED)
    try:
        with outside_database(place.name), engine.begin() as connection:
            _make_room(connection, sink, f"{MADE} {cohort_id}")
            for number, (name, blocks) in enumerate(cdm_tables(source)):
                address = f'"{sink.cdm_schema}"."{name}"'
                definitions = ", ".join(column.definition for column in columns(name))
                connection.execute(text(f"create table {address} ({definitions})"))
                _copy(run, connection, place.name, address, blocks)
                run.progress.advance(number + 1)
                connection.execute(text(f"comment on table {address} is '{MADE} {cohort_id}'"))
            run.check()
    finally:
        engine.dispose()
    return f"{place.name}.{sink.cdm_schema}"


def _make_room(connection: Connection, sink: OmopSchema, ours: str) -> None:
    """ConflictError if there are tables that may not be replaced; those of an attempt before this one may. Whoever
    writes there at the same time fails: a table is made once."""
    if connection.execute(text(SCHEMA), {"schema": sink.cdm_schema}).first() is None:
        connection.execute(text(f'create schema "{sink.cdm_schema}"'))
    there = connection.execute(text(THERE), {"schema": sink.cdm_schema, "tables": list(tables())}).all()
    if not sink.replace and any(comment != ours for _, comment in there):
        raise ConflictError(
            f"the schema {sink.cdm_schema} has tables of a CDM already; name another, or `replace` them"
        )
    if any(not comment.startswith(MADE) for _, comment in there):
        raise ConflictError(f"the schema {sink.cdm_schema} has tables that this service has not made: it replaces none")
    for name, _ in there:
        connection.execute(text(f'drop table "{sink.cdm_schema}"."{name}"'))


def _copy(run: JobRun, connection: Connection, name: str, address: str, blocks: Iterator[bytes]) -> None:
    cursor: Any = connection.connection.cursor()
    driver: Any = connection.dialect.loaded_dbapi
    try:
        with cursor, cursor.copy(f"copy {address} from stdin (format csv, header true)") as copy:
            for block in blocks:
                run.check()
                copy.write(block)
    except driver.Error as error:  # which no SQLAlchemy stands between
        raise OutsideError(f"the database '{name}' answers {type(error).__name__}") from None
