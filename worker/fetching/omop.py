"""An OMOP CDM in Postgres: the tables that the format `omop` reads, as Parquet, from one read-only snapshot.

Only the columns that are read leave the database, only concepts that rows refer to, and with a cohort only its people.
An attempt that is interrupted begins anew: files of two snapshots do not fit together.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ehr.errors import DataError, OutsideError
from ehr.formats.read.event_tables import Table
from ehr.formats.read.omop import Omop
from ehr.references import OmopDatabase
from model_store.database import open_engine
from model_store.timeouts import UNHURRIED
from runtime.places import Places, database_place
from worker.fetching.basket import Basket

ROWS_AT_A_TIME = 20_000
CONCEPT = "concept"
COLUMNS = "select table_name, column_name from information_schema.columns where table_schema = :schema"
SNAPSHOT = "set transaction isolation level repeatable read, read only"


@dataclass(frozen=True)
class CdmTable:
    """A table of the database, and those of its columns that are read."""

    name: str
    schema: str
    columns: tuple[str, ...]

    @property
    def address(self) -> str:
        return f'"{self.schema}"."{self.name}"'


def fetch_omop(basket: Basket, places: Places, owner: str, source: OmopDatabase) -> None:
    place = database_place(places, owner, source.connection, source.schemas)
    engine = open_engine(place.sqlalchemy_url, pooled=False, timeouts=UNHURRIED)
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        with outside_database(place.name):
            connection = stack.enter_context(engine.connect())
            connection.execute(text(SNAPSHOT))
            tables = _tables(connection, source)
        basket.expect(len(tables), 0)
        values = {} if source.cohort_id is None else {"cohort": source.cohort_id}
        for table in tables:
            rows = _streamed(place.name, connection, _query(table, tables, source), values)
            _fetch_table(basket, table, rows)


def _tables(connection: Connection, source: OmopDatabase) -> list[CdmTable]:
    """What there is of the tables that the reader knows."""
    of_schema = {schema: _columns(connection, schema) for schema in set(source.schemas.values())}
    found = []
    for table in Omop.tables:
        schema = source.cdm_schema
        if table.name == CONCEPT:
            schema = source.vocabulary_schema or source.cdm_schema
        there = of_schema[schema].get(table.name, set())
        if there and (missing := [names[0] for names in table.needs.values() if not there & set(names)]):
            raise DataError(f"the table {table.name} has no column {' and no column '.join(missing)}")
        if there:
            found.append(CdmTable(table.name, schema, tuple(_wanted(table, there))))
    if not any(table.events for table in Omop.tables if table.name in {each.name for each in found}):
        raise DataError(f"the schema {source.cdm_schema} has no table of events, such as condition_occurrence")
    cohorts = of_schema[source.cohort_schema or source.cdm_schema].get("cohort", set())
    if source.cohort_id is not None and not {"cohort_definition_id", "subject_id"} <= cohorts:
        raise DataError("there is no table cohort with cohort_definition_id and subject_id in cohort_schema")
    return found


def _columns(connection: Connection, schema: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for table, column in connection.execute(text(COLUMNS), {"schema": schema}):
        found.setdefault(table, set()).add(column)
    return found


def _wanted(table: Table, there: set[str]) -> Iterator[str]:
    for spellings in {**table.needs, **table.takes}.values():
        yield from [name for name in spellings if name in there][:1]


def _query(table: CdmTable, tables: Sequence[CdmTable], source: OmopDatabase) -> str:
    """Everything as text: as the CSV files that databases are exported to have it. Names are those of the database's
    own catalogue or were checked, so they can stand in quotes."""
    columns = ", ".join(f'"{name}"::text' for name in table.columns)
    query = f"select {columns} from {table.address}"
    if table.name == CONCEPT:
        return f"{query} where concept_id in ({_concepts(tables, source)})"
    return query + _of_cohort(source)


def _of_cohort(source: OmopDatabase) -> str:
    if source.cohort_id is None:
        return ""
    cohort = f'"{source.cohort_schema or source.cdm_schema}"."cohort"'
    return f" where person_id in (select subject_id from {cohort} where cohort_definition_id = :cohort)"


def _concepts(tables: Sequence[CdmTable], source: OmopDatabase) -> str:
    """The concepts that rows refer to: of six million in a vocabulary, some thousands."""
    queries = [
        f'select "{column}" from {table.address}{_of_cohort(source)}'
        for table in tables
        for column in table.columns
        if table.name != CONCEPT and column.endswith("concept_id")
    ]
    return " union ".join(queries) or "select null::integer"


def _streamed(name: str, connection: Connection, query: str, values: dict[str, int]) -> Iterator[Sequence[Row[Any]]]:
    """The rows of a query by a cursor of the server's, some at a time."""
    streamed = connection.execution_options(stream_results=True, yield_per=ROWS_AT_A_TIME)
    with outside_database(name):
        yield from streamed.execute(text(query), values).partitions()


def _fetch_table(basket: Basket, table: CdmTable, partitions: Iterator[Sequence[Row[Any]]]) -> None:
    schema = pa.schema([(name, pa.string()) for name in table.columns])

    def write(file: BinaryIO) -> None:
        with pq.ParquetWriter(pa.PythonFile(file, mode="w"), schema, compression="zstd") as writer:
            for rows in partitions:
                basket.run.check()
                columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

    basket.write(f"a{basket.run.claim.attempt}-{table.name}", f"{table.name}.parquet", write)


@contextmanager
def outside_database(name: str) -> Iterator[None]:
    """What goes wrong in somebody else's database is no fault of ours; its own words may quote data."""
    try:
        yield
    except DBAPIError as error:
        raise OutsideError(f"the database '{name}' answers {type(error.orig).__name__}") from None
    except SQLAlchemyError as error:
        raise OutsideError(f"the database '{name}' cannot be used: {type(error).__name__}") from None
