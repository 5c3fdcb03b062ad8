"""omop: condition_occurrence, procedure_occurrence, drug_exposure, measurement and observation of the OMOP CDM, with
person, visit_occurrence and concept where they are there. One record per visit or per person.

Codes are source values, in the system their source concept has in the concept table; or concept ids.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ehr.errors import DataError
from ehr.formats.concepts import CodeConcepts
from ehr.formats.read.columns import as_days, as_numbers, stripped, with_value_or_decile, without_dots
from ehr.formats.read.event_tables import Table, TablesReader
from ehr.formats.read.omop_concepts import ConceptTable
from ehr.formats.read.protocol import Batch, Events, Patients, Visits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.tables import Rows, read_rows

# gender_concept_id -> sex
SEXES = {"8507": "M", "8532": "F"}
WHO = {"patient": ("person_id",)}
VISIT = {"visit": ("visit_occurrence_id",)}


def _events(name: str, prefix: str, time: str, **more: tuple[str, ...]) -> Table:
    code = f"{prefix}_source_value"
    takes = {"concept": (f"{prefix}_concept_id",), "source": (f"{prefix}_source_concept_id",), "time": (time,)}
    return Table(name, {**WHO, "code": (code,)}, {**VISIT, **takes, **more}, distinctive=(code, "person_id"))


class Omop(TablesReader):
    name = "omop"
    generality = 0
    tables = (
        Table(
            "person",
            {**WHO, "year": ("year_of_birth",)},
            {
                "sex": ("gender_concept_id",),
                "sex_text": ("gender_source_value",),
                "month": ("month_of_birth",),
                "day": ("day_of_birth",),
            },
            distinctive=("year_of_birth",),
            events=False,
        ),
        Table(
            "visit_occurrence",
            {**WHO, **VISIT, "time": ("visit_start_date",)},
            distinctive=("visit_start_date", "visit_occurrence_id"),
            events=False,
        ),
        Table(
            "concept",
            {"id": ("concept_id",), "vocabulary": ("vocabulary_id",), "code": ("concept_code",)},
            distinctive=("concept_id", "vocabulary_id", "concept_code"),
            events=False,
        ),
        _events("condition_occurrence", "condition", "condition_start_date"),
        _events("procedure_occurrence", "procedure", "procedure_date"),
        _events("drug_exposure", "drug", "drug_exposure_start_date"),
        _events(
            "measurement", "measurement", "measurement_date", value=("value_as_number",), text=("value_source_value",)
        ),
        _events("observation", "observation", "observation_date"),
    )

    def prepare(self, found: Sequence[tuple[Table, SourceFile]]) -> None:
        files = {table.name: (table, file) for table, file in found}
        self._table = ConceptTable()
        if "concept" in files:
            table, file = files["concept"]
            self._table = ConceptTable.read(read_rows(file, table.columns(file), Rejects()))
        # an age needs a birth and a day; the visits' days will do where they are there
        self._wants_days = self.options.demographics and "person" in files
        self._days_of_events = self._wants_days and "visit_occurrence" not in files

    def wants(self, table: Table) -> bool:
        return table.events or (self._wants_days and table.name != "concept")

    def batches_of(self, table: Table, rows: Rows, rejects: Rejects) -> Iterator[Batch]:
        if table.events:
            yield self._events_of(table, rows, rejects)
        elif table.name == "person":
            yield _patients_of(rows)
        else:
            yield Visits(rows.file, rows.lines, *self.who(rows), as_days(rows.columns["time"]))

    def _events_of(self, table: Table, rows: Rows, rejects: Rejects) -> Events:
        if self.unit not in rows.columns:
            raise DataError(f"{table.name} has no column visit_occurrence_id; read it with unit=patient")
        if self.options.codes_from == "concept":
            rows, code, system = self._by_concept(table, rows, rejects)
        else:
            code, system = self._by_source(table, rows)
        value = None
        if "value" in rows.columns:
            code, value = with_value_or_decile(code, rows.columns["value"], rows.columns.get("text"))
        day = as_days(rows.columns["time"]) if self._days_of_events and "time" in rows.columns else None
        record, patient = self.who(rows)
        was_number = "code" in rows.numbers and self.options.codes_from == "source"
        return Events(rows.file, rows.lines, record, code, system, patient, value, day, was_number)

    def _by_source(self, table: Table, rows: Rows) -> tuple[pa.StringArray, pa.StringArray | str]:
        code = stripped(rows.columns["code"])
        fallback = table.name.split("_")[0].upper()
        if table.name == "condition_occurrence" and self.options.default_vocabulary is not None:
            fallback = self.options.default_vocabulary
        if len(self._table) == 0 or "source" not in rows.columns:
            return without_dots(code) if fallback.startswith("ICD") else code, fallback
        at = self._table.positions(rows.columns["source"])
        system = self._table.systems(at, fallback)
        code = pc.if_else(pc.starts_with(system, "ICD"), without_dots(code), code)
        self._remember(code, system, at, rows)
        return code, system

    def _by_concept(
        self, table: Table, rows: Rows, rejects: Rejects
    ) -> tuple[Rows, pa.StringArray, pa.StringArray | str]:
        if "concept" not in rows.columns:
            raise DataError(f"{table.name} has no column {table.takes['concept'][0]}; read it with codes_from=source")
        concept = stripped(rows.columns["concept"])
        none = pc.fill_null(pc.is_in(concept, pa.array(["", "0"])), True).to_numpy(zero_copy_only=False)
        rejects.add("no-concept", rows.lines[none], rows.file)
        rows, concept = rows.where(~none), concept.filter(pa.array(~none))
        at = self._table.positions(concept)
        code = pc.if_else(pa.array(at >= 0), self._table.codes(at), concept)
        system = self._table.systems(at, "OMOP")
        return rows, pc.if_else(pc.starts_with(system, "ICD"), without_dots(code), code), system

    def _remember(self, code: pa.StringArray, system: pa.StringArray, at: NDArray[np.int64], rows: Rows) -> None:
        """The concepts of codes, for the cohort that comes back."""
        standard = self._table.positions(rows.columns["concept"]) if "concept" in rows.columns else np.full(len(at), -1)
        seen = pa.table({"code": code, "system": system, "at": at, "standard": standard})
        seen = seen.filter(pc.or_(pc.greater_equal(seen["at"], 0), pc.greater_equal(seen["standard"], 0)))
        for row in seen.group_by(list(seen.column_names)).aggregate([]).to_pylist():
            name = f"{row['system']}:{row['code']}"
            if name not in self.concepts:
                self.concepts[name] = CodeConcepts(self._table.concept(row["at"]), self._table.concept(row["standard"]))


def _patients_of(rows: Rows) -> Patients:
    columns = rows.columns
    sex = pa.nulls(len(rows), pa.string())
    if "sex" in columns:
        sex = pa.array([SEXES.get(text) for text in stripped(columns["sex"]).to_pylist()], pa.string())
    if "sex_text" in columns:
        sex = pc.coalesce(sex, columns["sex_text"])
    year = stripped(columns["year"])
    month, day = (_two_digits(columns[role]) if role in columns else "01" for role in ("month", "day"))
    birth = as_days(pc.binary_join_element_wise(year, month, day, "-"))
    return Patients(rows.file, rows.lines, columns["patient"], sex, birth)


def _two_digits(column: pa.StringArray) -> pa.StringArray:
    number = pc.cast(as_numbers(column), pa.int64(), safe=False)
    return pc.utf8_lpad(pc.cast(pc.fill_null(number, 1), pa.string()), 2, "0")
