"""long: a row per code, in CSV, TSV, Parquet or NDJSON (plain, gzip, zstd).

Columns: record_id, code, and optionally vocabulary, patient_id, time, value, unit, and the code's name (or description,
or display). A value makes the code a lab. Times are read past: records are sets.

In histories patient_id and date (or time) are needed, and a record_id names a visit; without it, all that a patient has
on one day is a visit. sex, birth_year (or birth_date) and death_date say what is known of the patient.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ehr.errors import DataError
from ehr.formats.read.columns import as_days, as_numbers, filled, stripped, visit_ids
from ehr.formats.read.json_lines import first_object, read_objects
from ehr.formats.read.protocol import Batch, Events, Patients, Reader, Visits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.tables import NAME, Rows, read_rows
from ehr.formats.spreadsheet import as_meant

REQUIRED, OPTIONAL = ("record_id", "code"), ("vocabulary", "patient_id", "time", "value", "unit", "name")
READ = ("record_id", "code", "vocabulary", "patient_id", "value", "unit")
NAMES = ("name", "description", "display")  # what a code is called; the first that is there counts
# in histories: role -> names of its column; the first that is there counts
DATED = {
    "day": ("date", "time"),
    "sex": ("sex", "gender"),
    "birth": ("birth_date", "birth_year"),
    "death": ("death_date",),
}

OF_HISTORIES = ("record_id", "sex", "birth_date", "birth_year", "death_date")


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
                yield from self._rows(_as_meant(rows) if file.kind == "table" else rows, rejects)

    def _columns(self, file: SourceFile) -> dict[str, str]:
        there = file.plain_columns
        for name in READ:
            if there.count(name) > 1:
                raise DataError(f"the column {name} is there twice")
        needed = REQUIRED if self.unit == "visit" else ("patient_id", "code")
        missing = [name for name in needed if name not in there]
        if self.over_time and not set(DATED["day"]) & set(there):
            missing.append("date")
        if missing:  # the names that are there are not told: without a header they would be somebody's data
            required = ("patient_id", "date", "code") if self.over_time else REQUIRED
            optional = (*OPTIONAL, *OF_HISTORIES) if self.over_time else OPTIONAL
            raise DataError(
                f"{file.called} has no column {' and no column '.join(missing)}; its first line must name the columns"
                f" {', '.join(required)} and may name {', '.join(name for name in optional if name not in required)}"
            )
        chosen = {name: name for name in READ if name in there}
        if (called := next((name for name in NAMES if there.count(name) == 1), None)) is not None:
            chosen[NAME] = called
        if self.over_time:
            found = {role: next((name for name in names if name in there), None) for role, names in DATED.items()}
            chosen |= {role: name for role, name in found.items() if name is not None}
        return chosen | ({"record_id": "patient_id"} if self.unit == "patient" else {})

    def _rows(self, rows: Rows, rejects: Rejects) -> Iterator[Batch]:
        if self.over_time:
            rows = _with_visits(rows)
            if self.options.demographics and {"sex", "birth", "death"} & rows.columns.keys():
                yield _patients(rows)
        yield from self._events(rows, rejects)

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
        more["day"] = as_days(rows.columns["day"]) if "day" in rows.columns else None
        return Events(rows.file, rows.lines, record, code, system, patient, value, **more)

    def _of_objects(self, file: str, numbered: list[tuple[int, dict[str, Any]]], rejects: Rejects) -> Iterator[Batch]:
        """Objects with one code each, or with the list `codes` of a whole record, which may be empty."""
        flat, whole = [], []
        for line, found in numbered:
            if isinstance(codes := found.get("codes"), list):
                whole.append((line, found))
                flat += [(line, {**found, **one}) for one in _each(codes, found.get("names"))]
            else:
                name = next((found[name] for name in NAMES if name in found), None)
                flat.append((line, found if name is None else {**found, NAME: name}))
        if whole and self.by == "visit":
            yield self._visits(_as_rows(file, whole, self._roles()))
        rows = _as_rows(file, flat, self._roles())
        lines, columns = rows.lines, dict(rows.columns)
        numbers = {"code"} if any(isinstance(found.get("code"), int) for _, found in flat) else set()
        if self.unit == "patient" and "patient_id" in columns:
            columns["record_id"] = columns["patient_id"]
        there = {"patient_id", "code", "day"} if self.over_time else {"record_id", "code"}
        if flat and there <= columns.keys():
            yield from self._rows(Rows(file, lines, columns, frozenset(numbers)), rejects)

    def _roles(self) -> dict[str, tuple[str, ...]]:
        """role -> names of the keys of objects that have it."""
        return {role: (role,) for role in (*READ, NAME)} | (DATED if self.over_time else {})

    def _visits(self, rows: Rows) -> Visits:
        """Records that are there whatever codes they have."""
        if not self.over_time:
            nobody = pa.nulls(len(rows), pa.string())
            return Visits(rows.file, rows.lines, rows.columns.get("record_id", nobody), counts=True)
        missing = {role: pa.nulls(len(rows), pa.string()) for role in ("patient_id", "day")}
        rows = _with_visits(replace(rows, columns=missing | dict(rows.columns)))
        record, patient, day = (rows.columns[role] for role in ("record_id", "patient_id", "day"))
        return Visits(rows.file, rows.lines, record, patient, as_days(day), counts=True)


def _is_long(file: SourceFile) -> bool:
    if file.kind == "json":
        first = first_object(file)
        return bool({"record_id", "patient_id"} & first.keys()) and ("code" in first or "codes" in first)
    return set(REQUIRED) <= set(file.plain_columns) or {"patient_id", "code"} <= set(file.plain_columns)


def _with_visits(rows: Rows) -> Rows:
    """Rows of histories, each with the visit it belongs to."""
    day, own = as_days(rows.columns["day"]), rows.columns.get("record_id")
    return replace(rows, columns={**rows.columns, "record_id": visit_ids(rows.columns["patient_id"], day, own)})


def _patients(rows: Rows) -> Patients:
    nothing = pa.nulls(len(rows), pa.string())
    sex, birth, death = (rows.columns.get(role, nothing) for role in ("sex", "birth", "death"))
    # a year is a birth on its first day
    birth = pc.replace_substring_regex(stripped(birth), r"^(\d{4})$", r"\1-01-01")
    return Patients(rows.file, rows.lines, rows.columns["patient_id"], sex, as_days(birth), as_days(death))


def _as_rows(file: str, objects: list[tuple[int, dict[str, Any]]], roles: dict[str, tuple[str, ...]]) -> Rows:
    """Objects as columns: those roles that any of them has."""
    columns = {}
    for role, names in roles.items():
        if any(name in found for _, found in objects for name in names):
            cells = [next((found[name] for name in names if name in found), None) for _, found in objects]
            columns[role] = pa.array([_text(cell) for cell in cells], pa.string())
    return Rows(file, np.array([line for line, _ in objects], dtype=np.int64), columns)


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
