"""long: a row per code, in CSV, TSV, Parquet or NDJSON (plain, gzip, zstd).

Columns: record_id, code, and optionally vocabulary, patient_id, time, value, unit, and the code's name (or description,
or display). A value makes the code a lab. Times are read past: records are sets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ehr.errors import DataError
from ehr.formats.read.columns import as_numbers, filled
from ehr.formats.read.json_lines import first_object, read_objects
from ehr.formats.read.protocol import Batch, Events, Reader, Visits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.tables import NAME, Rows, read_rows
from ehr.formats.spreadsheet import as_meant

REQUIRED, OPTIONAL = ("record_id", "code"), ("vocabulary", "patient_id", "time", "value", "unit", "name")
READ = ("record_id", "code", "vocabulary", "patient_id", "value", "unit")
NAMES = ("name", "description", "display")  # what a code is called; the first that is there counts


class LongReader(Reader):
    name = "long"
    generality = 2

    @classmethod
    def tables_in(cls, files: Sequence[SourceFile]) -> dict[int, str]:
        return {i: "long" for i, file in enumerate(files) if _is_long(file)}

    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        for file in self.files:
            if file.kind == "json":
                for numbered in read_objects(file, rejects):
                    yield from self._of_objects(file.label, numbered, rejects)
                continue
            for rows in read_rows(file, self._columns(file), rejects):
                yield from self._events(_as_meant(rows) if file.kind == "table" else rows, rejects)

    def _columns(self, file: SourceFile) -> dict[str, str]:
        there = file.plain_columns
        for name in READ:
            if there.count(name) > 1:
                raise DataError(f"the column {name} is there twice")
        needed = REQUIRED if self.unit == "visit" else ("patient_id", "code")
        missing = [name for name in needed if name not in there]
        if missing:  # the names that are there are not told: without a header they would be somebody's data
            raise DataError(
                f"{file.called} has no column {' and no column '.join(missing)}; its first line must name the columns"
                f" {', '.join(REQUIRED)} and may name {', '.join(OPTIONAL)}"
            )
        chosen = {name: name for name in READ if name in there}
        if (called := next((name for name in NAMES if there.count(name) == 1), None)) is not None:
            chosen[NAME] = called
        return chosen | ({"record_id": "patient_id"} if self.unit == "patient" else {})

    def _events(self, rows: Rows, rejects: Rejects) -> Iterator[Events]:
        """Rows that name no system have a batch of their own: an empty cell is as good as no column."""
        named = filled(rows.columns["vocabulary"]) if "vocabulary" in rows.columns else np.zeros(len(rows), dtype=bool)
        if named.any():
            mine = rows.where(named)
            yield self._events_of(mine, rejects, mine.columns["vocabulary"])
        if not named.all():
            yield self._events_of(rows.where(~named), rejects, self.options.default_vocabulary)

    def _events_of(self, rows: Rows, rejects: Rejects, system: pa.StringArray | str | None) -> Events:
        value = None
        if "value" in rows.columns:
            value = as_numbers(rows.columns["value"])
            wrong = filled(rows.columns["value"]) & pc.is_null(value).to_numpy(zero_copy_only=False)
            rejects.add("value-not-a-number", rows.lines[wrong], rows.file)
            rows, value = rows.where(~wrong), value.filter(pa.array(~wrong))
            system = system.filter(pa.array(~wrong)) if isinstance(system, pa.Array) else system
        record, code, patient = rows.columns["record_id"], rows.columns["code"], rows.columns.get("patient_id")
        more: dict[str, Any] = {"code_was_number": "code" in rows.numbers, "value_unit": rows.columns.get("unit")}
        more["name"] = rows.columns.get(NAME)
        return Events(rows.file, rows.lines, record, code, system, patient, value, **more)

    def _of_objects(self, file: str, numbered: list[tuple[int, dict[str, Any]]], rejects: Rejects) -> Iterator[Batch]:
        """Objects with one code each, or with the list `codes` of a whole record, which may be empty."""
        flat, whole = [], []
        for line, found in numbered:
            if isinstance(codes := found.get("codes"), list):
                whole.append((line, found.get("record_id")))
                flat += [(line, {**found, **one}) for one in _each(codes, found.get("names"))]
            else:
                name = next((found[name] for name in NAMES if name in found), None)
                flat.append((line, found if name is None else {**found, NAME: name}))
        if whole and self.unit == "visit":
            lines = np.array([line for line, _ in whole], dtype=np.int64)
            yield Visits(file, lines, pa.array([_text(who) for _, who in whole], pa.string()), counts=True)
        roles = [role for role in (*READ, NAME) if any(role in found for _, found in flat)]
        columns = {role: pa.array([_text(found.get(role)) for _, found in flat], pa.string()) for role in roles}
        lines = np.array([line for line, _ in flat], dtype=np.int64)
        numbers = {"code"} if any(isinstance(found.get("code"), int) for _, found in flat) else set()
        if self.unit == "patient" and "patient_id" in columns:
            columns["record_id"] = columns["patient_id"]
        if flat and {"record_id", "code"} <= columns.keys():
            yield from self._events(Rows(file, lines, columns, frozenset(numbers)), rejects)


def _is_long(file: SourceFile) -> bool:
    if file.kind == "json":
        first = first_object(file)
        return "record_id" in first and ("code" in first or "codes" in first)
    return set(REQUIRED) <= set(file.plain_columns) or {"patient_id", "code"} <= set(file.plain_columns)


def _as_meant(rows: Rows) -> Rows:
    texts = ("code", "vocabulary", "unit", NAME)
    codes = {role: as_meant(rows.columns[role]) for role in texts if role in rows.columns}
    return replace(rows, columns={**rows.columns, **codes})


def _each(codes: list[Any], names: Any) -> list[dict[str, Any]]:
    """The codes of a record one by one, with their names if there are as many."""
    if not isinstance(names, list) or len(names) != len(codes):
        return [{"code": code} for code in codes]
    return [{"code": code, NAME: name} for code, name in zip(codes, names, strict=True)]


def _text(value: Any) -> str | None:
    """Text and whole numbers; anything else is as good as nothing."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
