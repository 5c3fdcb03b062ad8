"""Formats that are a set of tables: each table is one line that says which of its columns mean what."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from ehr.errors import DataError
from ehr.formats.read.columns import as_days, visit_ids
from ehr.formats.read.protocol import Batch, Reader
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.tables import Rows, read_rows


@dataclass(frozen=True)
class Table:
    """`needs` and `takes` are role -> spellings of the column's name. A table is recognised by its file's name and
    `needs`, or by its columns alone where all of `distinctive` are there, which no other table has."""

    name: str
    needs: Mapping[str, tuple[str, ...]]
    takes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    distinctive: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()  # columns that must be there and are not read
    events: bool = True  # whether it gives records codes
    stems: tuple[str, ...] = ()  # other names of the file
    system: str = ""  # of its codes, where all rows have the same

    def named(self, file: SourceFile) -> bool:
        return any(
            file.stem == name or file.stem.startswith((name + "_", name + "-", name + ".")) for name in self.names
        )

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.stems)

    def missing(self, file: SourceFile) -> list[str]:
        """Columns that the table needs and the file has not."""
        there = set(file.plain_columns)
        needed = (*self.needs.values(), *((mark,) for mark in self.marks))
        return [spellings[0] for spellings in needed if not there & set(spellings)]

    def is_in(self, file: SourceFile) -> bool:
        by_columns = self.distinctive != () and set(self.distinctive) <= set(file.plain_columns)
        return (by_columns or self.named(file)) and not self.missing(file)

    def columns(self, file: SourceFile) -> dict[str, str]:
        """role -> the column's name in this file."""
        there = set(file.plain_columns)
        found = {
            role: next((name for name in spellings if name in there), None)
            for role, spellings in {**self.needs, **self.takes}.items()
        }
        chosen = {role: name for role, name in found.items() if name is not None}
        for name in chosen.values():
            if file.plain_columns.count(name) > 1:
                raise DataError(f"the column {name} is there twice")
        return chosen


class TablesReader(Reader):
    """Reads every table it knows, those without events first: sex, birth and visits are known when codes come."""

    tables: ClassVar[tuple[Table, ...]]

    @classmethod
    def table_of(cls, file: SourceFile) -> Table | None:
        """The table a file holds. An exact name wins over a longer one that begins alike."""
        fitting = [table for table in cls.tables if table.is_in(file)]
        exact = [table for table in fitting if file.stem in table.names]
        return (exact or fitting or [None])[0]  # type: ignore[list-item]

    @classmethod
    def tables_in(cls, files: Sequence[SourceFile]) -> dict[int, str]:
        found = {i: table for i, file in enumerate(files) if (table := cls.table_of(file)) is not None}
        return {i: table.name for i, table in found.items()} if any(table.events for table in found.values()) else {}

    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        found = [(table, file) for file in self.files if (table := self.table_of(file)) is not None]
        if not any(table.events for table, _ in found):
            raise DataError(self.explain())
        self.prepare(found)
        for table, file in sorted(found, key=lambda pair: pair[0].events):
            if self.wants(table):
                for rows in read_rows(file, self.columns_of(table, file), rejects):
                    yield from self.batches_of(table, rows, rejects)

    def prepare(self, found: Sequence[tuple[Table, SourceFile]]) -> None:
        """Look at the tables that others refer to."""

    def wants(self, table: Table) -> bool:
        """Whether a table is to be read, after `prepare` had its look."""
        return table.events or self.options.demographics or (self.over_time and "visit" in table.needs)

    def columns_of(self, table: Table, file: SourceFile) -> dict[str, str]:
        """role -> column of what `batches_of` needs."""
        return table.columns(file)

    def who(self, rows: Rows) -> tuple[pa.StringArray, pa.StringArray]:
        """(record, patient) of each row. In a history, what is in no visit belongs to its day."""
        patient, own = rows.columns["patient"], rows.columns.get(self.by)
        if self.over_time and "time" in rows.columns:
            own = visit_ids(patient, as_days(rows.columns["time"]), own)
        return own, patient

    @abstractmethod
    def batches_of(self, table: Table, rows: Rows, rejects: Rejects) -> Iterator[Batch]:
        """What some rows of a table say."""

    def explain(self) -> str:
        for file in self.files:
            for table in self.tables:
                if file.stem in table.names and (missing := table.missing(file)):
                    return f"{table.name} has no column {' and no column '.join(missing)}"
        known = ", ".join(table.name for table in self.tables if table.events)
        return f"no file of the upload is a table of the format {self.name}; it looks for {known}"
