"""Loading an omop.zip, with every constraint of the CDM and every check of dqd.py."""

from pathlib import Path
from zipfile import ZipFile

import duckdb
import psycopg

from benchmarks import _cdm54 as cdm
from tests.formats.dqd import checks


def load_cdm(data: bytes, folder: Path) -> duckdb.DuckDBPyConnection:
    """The zip in DuckDB."""
    folder.mkdir(exist_ok=True)
    (folder / "cohort.zip").write_bytes(data)
    database = cdm.load(folder / "cohort.zip", folder)
    assert cdm.broken(database) == {}
    failed = {name: count for name, sql in checks() if (count := database.execute(sql).fetchall()[0][0])}
    assert failed == {}
    return database


def load_postgres(data: bytes, folder: Path, url: str) -> None:
    """The zip in Postgres, which keeps the constraints itself: foreign keys are added when all tables are full, because
    some refer to each other."""
    (folder / "cohort.zip").write_bytes(data)
    with psycopg.connect(url) as connection, ZipFile(folder / "cohort.zip") as archive:
        for table in cdm.tables():
            connection.execute(cdm.create(table))
            with connection.cursor().copy(f"copy {table} from stdin with (format csv, header true)") as copy:
                copy.write(archive.read(f"{table}.csv"))
        for column in cdm.foreign_keys():
            other = column.refers_to
            connection.execute(
                f"alter table {column.table} add foreign key ({column.name}) references {other} ({other}_id)"
            )
        failed = {name: count for name, sql in checks() if (count := connection.execute(sql).fetchall()[0][0])}
        assert failed == {}
