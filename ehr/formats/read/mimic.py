"""What MIMIC-III and MIMIC-IV share: the same kinds of tables under other column names."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ehr.formats.cdm import EHR, INPATIENT, Visit
from ehr.formats.read.columns import as_days, filled, stripped, with_value_or_decile, without_dots
from ehr.formats.read.event_tables import Table, TablesReader
from ehr.formats.read.protocol import Batch, Events, Patients, Visits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.tables import NAME, Rows, read_rows

LABS, LAB = "labevents", "MIMICLAB"
ITEM = {"code": ("itemid",)}
MEASURED = {"text": ("value",), "value_unit": ("valueuom",)}
WHO = {"visit": ("hadm_id",), "patient": ("subject_id",)}
DEATH = {"death": ("dod",)}
# of events, which date a stay in a history where ADMISSIONS does not
TIME = {"time": ("charttime", "chartdate", "startdate", "starttime")}


def is_dictionary(table: Table) -> bool:
    """Whether a table lists codes, and no patients."""
    return table.name.startswith("d_")


def death_of(rows: Rows) -> pa.Date32Array | None:
    return as_days(rows.columns["death"]) if "death" in rows.columns else None


class Mimic(TablesReader):
    masked_age = 250
    visits = Visit(INPATIENT, EHR)  # a HADM_ID is a stay in hospital
    _loinc: pa.Table

    def prepare(self, found: Sequence[tuple[Table, SourceFile]]) -> None:
        """Names of codes, and LOINC codes of lab items: thousands of rows."""
        items: dict[str, str] = {}
        for table, file in found:
            columns = table.columns(file)
            for rows in read_rows(file, columns, Rejects()) if is_dictionary(table) else ():
                if "loinc" in columns:
                    named = zip(*(stripped(rows.columns[role]).to_pylist() for role in ("code", "loinc")), strict=True)
                    items |= {item: loinc for item, loinc in named if item and loinc}
                if NAME in columns:
                    self._take_names(table, rows)
        self._loinc = pa.table(
            {"item": pa.array(list(items), pa.string()), "loinc": pa.array(list(items.values()), pa.string())}
        )

    def _take_names(self, table: Table, rows: Rows) -> None:
        name = rows.columns[NAME]
        self.remember_names(without_dots(rows.columns["code"]), name, self.system_of(table, rows))
        if "loinc" in rows.columns:
            self.remember_names(rows.columns["loinc"], name, "LOINC")

    def batches_of(self, table: Table, rows: Rows, rejects: Rejects) -> Iterator[Batch]:
        if table.name == "patients":
            yield self.patients_of(rows)
        elif table.name == "admissions":
            yield Visits(rows.file, rows.lines, *self.who(rows), as_days(rows.columns["time"]))
        else:
            yield from self.events_of(table, rows, rejects)

    def columns_of(self, table: Table, file: SourceFile) -> dict[str, str]:
        columns = super().columns_of(table, file)
        return columns if self.over_time or not table.events else {r: n for r, n in columns.items() if r != "time"}

    def wants(self, table: Table) -> bool:
        return super().wants(table) and not is_dictionary(table)

    def patients_of(self, rows: Rows) -> Patients:
        birth = as_days(rows.columns["birth"])
        return Patients(rows.file, rows.lines, rows.columns["patient"], rows.columns["sex"], birth, death_of(rows))

    def events_of(self, table: Table, rows: Rows, rejects: Rejects) -> Iterator[Batch]:
        if table.name == LABS:
            yield self._labs(rows)
            return
        if table.system == "NDC":
            none = pc.equal(stripped(rows.columns["code"]), "0").to_numpy(zero_copy_only=False)
            rejects.add("no-ndc", rows.lines[none], rows.file)
            rows = rows.where(~none)
        record, patient = self.who(rows)
        code, system = without_dots(rows.columns["code"]), self.system_of(table, rows)
        was_number, name = "code" in rows.numbers, rows.columns.get(NAME)
        day = as_days(rows.columns["time"]) if "time" in rows.columns else None
        more: dict[str, Any] = {"code_was_number": was_number, "name": name, "day": day}
        yield Events(rows.file, rows.lines, record, code, system, patient, **more)

    def system_of(self, table: Table, rows: Rows) -> pa.StringArray | str:
        return table.system

    def _labs(self, rows: Rows) -> Events:
        """Items by their LOINC code if D_LABITEMS gives one, else by their number."""
        rows = rows.where(filled(rows.columns["code"]))
        item = stripped(rows.columns["code"])
        loinc = self._loinc["loinc"].take(pc.index_in(item, self._loinc["item"])).combine_chunks()
        code, value = with_value_or_decile(pc.coalesce(loinc, item), rows.columns["value"], rows.columns.get("text"))
        system = pc.if_else(pc.is_valid(loinc), "LOINC", LAB)
        record, patient = self.who(rows)
        measured = {"value": value, "value_unit": rows.columns.get("value_unit")}
        measured["day"] = as_days(rows.columns["time"]) if "time" in rows.columns else None
        return Events(rows.file, rows.lines, record, code, system, patient, **measured)
