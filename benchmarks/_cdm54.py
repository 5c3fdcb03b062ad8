"""omop.zip in a database, and which constraints of the OMOP CDM 5.4 it breaks there."""

import re
from pathlib import Path
from zipfile import ZipFile

import duckdb

from ehr.formats.cdm54 import Column, columns, create, foreign_keys, tables

__all__ = ["ELSEWHERE", "EVENTS", "Column", "broken", "columns", "create", "foreign_keys", "load", "tables"]

# event table -> prefix of its columns
EVENTS = {
    "condition_occurrence": "condition",
    "drug_exposure": "drug",
    "procedure_occurrence": "procedure",
    "measurement": "measurement",
    "observation": "observation",
}
# keys into tables that a cohort has not: such a column must be empty
ELSEWHERE = ("location_id", "provider_id", "care_site_id", "visit_detail_id")


def load(zip_path: Path, folder: Path) -> duckdb.DuckDBPyConnection:
    """The zip in DuckDB, which refuses what has the wrong type, is null or is there twice. DuckDB adds no foreign keys
    to tables and does not look at lengths: `broken` does both."""
    with ZipFile(zip_path) as archive:
        archive.extractall(folder)
    database = duckdb.connect()
    for table in tables():
        database.execute(create(table))
        database.execute(f"copy {table} from '{folder / f'{table}.csv'}' (header true, delimiter ',', quote '\"')")
    return database


def broken(database: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Rows that break a constraint which the database was not asked to keep, by constraint."""
    asked = {}
    for table in tables():
        for column in columns(table):
            where = f"{table}.{column.name}"
            if column.refers_to is not None:
                other = column.refers_to
                asked[f"{where} is in {other}"] = (
                    f"from {table} where {column.name} is not null"
                    f" and {column.name} not in (select {other}_id from {other})"
                )
            if column.name in ELSEWHERE:
                asked[f"{where} is empty"] = f"from {table} where {column.name} is not null"
            if (length := re.fullmatch(r"varchar\((\d+)\)", column.type)) is not None:
                asked[f"{where} fits"] = f"from {table} where length({column.name}) > {length[1]}"
    counts = {name: database.execute(f"select count(*) {sql}").fetchall()[0][0] for name, sql in asked.items()}
    return {name: count for name, count in counts.items() if count}
