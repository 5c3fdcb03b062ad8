"""omop: condition_occurrence, procedure_occurrence, drug_exposure, measurement and observation of the OMOP CDM, with
person, visit_occurrence and concept where they are there. One record per visit or per person.

Codes are source values, in the system their source concept has in the concept table, else by their shape; or concepts.
What else the tables say of an event, a visit or a person (concepts, types, race) is numbered for the cohort that comes
back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ehr.codes.systems import VISIT as VISIT_SYSTEM
from ehr.errors import DataError
from ehr.formats.cdm import EVENT_TABLES, Period, Person, Row, Visit, concept_ids
from ehr.formats.concepts import CodeConcepts, Concept
from ehr.formats.read.columns import as_days, as_numbers, stripped, with_value_or_decile, without_dots
from ehr.formats.read.event_tables import Table, TablesReader
from ehr.formats.read.omop_concepts import ConceptTable, as_ids
from ehr.formats.read.omop_rows import Ways
from ehr.formats.read.omop_systems import SystemsByShape
from ehr.formats.read.omop_units import MEASURED, units_of
from ehr.formats.read.protocol import Batch, Events, Kinds, Patients, Visits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.tables import Rows, read_rows

# gender_concept_id -> sex
SEXES = {"8507": "M", "8532": "F"}
PERSON = tuple(field.name for field in fields(Person))
# field of a Row -> role of a column
IDS = {"standard": "concept", "source": "source", "type": "type"}
WHO = {"patient": ("person_id",)}
VISIT = {"visit": ("visit_occurrence_id",)}


def _events(name: str, prefix: str, time: str, **more: tuple[str, ...]) -> Table:
    code = f"{prefix}_source_value"
    ids = {"concept": prefix, "source": f"{prefix}_source", "type": f"{prefix}_type"}
    takes = {"time": (time,)} | {role: (f"{name}_concept_id",) for role, name in ids.items()}
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
                "race": ("race_concept_id",),
                "race_source": ("race_source_concept_id",),
                "race_source_value": ("race_source_value",),
                "ethnicity": ("ethnicity_concept_id",),
                "ethnicity_source": ("ethnicity_source_concept_id",),
                "ethnicity_source_value": ("ethnicity_source_value",),
            },
            distinctive=("year_of_birth",),
            events=False,
        ),
        Table(
            "visit_occurrence",
            {**WHO, **VISIT, "time": ("visit_start_date",)},
            {
                "concept": ("visit_concept_id",),
                "type": ("visit_type_concept_id",),
                "source": ("visit_source_concept_id",),
            },
            distinctive=("visit_start_date", "visit_occurrence_id"),
            events=False,
        ),
        Table("death", {**WHO, "death": ("death_date",)}, distinctive=("death_date", "person_id"), events=False),
        Table(
            "observation_period",
            {**WHO, "type": ("period_type_concept_id",)},
            distinctive=("period_type_concept_id",),
            events=False,
        ),
        Table(
            "concept",
            {"id": ("concept_id",), "vocabulary": ("vocabulary_id",), "code": ("concept_code",)},
            {
                "name": ("concept_name",),
                "domain": ("domain_id",),
                "class": ("concept_class_id",),
                "standard": ("standard_concept",),
            },
            distinctive=("concept_id", "vocabulary_id", "concept_code"),
            events=False,
        ),
        _events("condition_occurrence", "condition", "condition_start_date"),
        _events("procedure_occurrence", "procedure", "procedure_date"),
        _events("drug_exposure", "drug", "drug_exposure_start_date"),
        _events("measurement", "measurement", "measurement_date", **MEASURED),
        _events("observation", "observation", "observation_date"),
    )

    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        self._rows, self._people, self._visits, self._periods = Ways(Row), Ways(Person), Ways(Visit), Ways(Period)
        self._shapes = SystemsByShape()
        yield from super().batches(rejects)
        self.ways = self._rows.found
        self.kinds = {"people": self._people.found, "visits": self._visits.found, "periods": self._periods.found}
        self._describe()

    def prepare(self, found: Sequence[tuple[Table, SourceFile]]) -> None:
        files = {table.name: (table, file) for table, file in found}
        self._table = ConceptTable()
        self._concept_file = files.get("concept")
        if self._concept_file is not None:
            table, file = self._concept_file
            needed = {role: name for role, name in table.columns(file).items() if role in table.needs}
            self._table = ConceptTable.read(read_rows(file, needed, Rejects()))
        # an age needs a birth and a day; the visits' days will do where they are there
        self._wants_days = self.over_time or (self.options.demographics and "person" in files)
        self._days_of_events = self._wants_days and (self.over_time or "visit_occurrence" not in files)

    def wants(self, table: Table) -> bool:
        return table.name != "concept" and (table.name != "death" or self.over_time)

    def batches_of(self, table: Table, rows: Rows, rejects: Rejects) -> Iterator[Batch]:
        columns = rows.columns
        if table.events:
            yield self._events_of(table, rows, rejects)
        elif table.name == "person":
            said = {role: columns[role] for role in PERSON if role in columns}
            yield Kinds("people", columns["patient"], self._people.of_rows(len(rows), said))
            if self.options.demographics:
                yield _patients_of(rows)
        elif table.name == "death":
            nothing = pa.nulls(len(rows), pa.string())
            days = nothing.cast(pa.date32()), as_days(columns["death"])
            yield Patients(rows.file, rows.lines, columns["patient"], nothing, *days)
        elif table.name == "observation_period":
            yield Kinds("periods", columns["patient"], self._periods.of_rows(len(rows), {"type": columns["type"]}))
        else:
            said = {role: columns[role] for role in ("concept", "type", "source") if role in columns}
            yield Kinds("visits", columns[self.by], self._visits.of_rows(len(rows), said))
            yield from self._visits_of(rows)

    def _visits_of(self, rows: Rows) -> Iterator[Visits]:
        """The kind of a visit is a code of a record that is one visit."""
        day = as_days(rows.columns["time"]) if self._wants_days else None
        concept = None
        if "concept" in rows.columns and self.by == "visit" and self.options.demographics:
            number = as_ids(rows.columns["concept"])
            concept = pa.array(number, mask=number <= 0).cast(pa.string())
        if day is not None or concept is not None:
            yield Visits(rows.file, rows.lines, *self.who(rows), day, concept=concept)

    def _events_of(self, table: Table, rows: Rows, rejects: Rejects) -> Events:
        if self.by not in rows.columns and not (self.over_time and "time" in rows.columns):
            raise DataError(f"{table.name} has no column visit_occurrence_id; read it with unit=patient")
        by_concept = self.options.codes_from == "concept"
        rows = self._with_concept(table, rows, rejects) if by_concept else rows
        ids = {field: rows.columns[role] for field, role in IDS.items() if role in rows.columns}
        code, system = self._by_source(table, rows)
        if by_concept:
            ids["source_code"] = pc.binary_join_element_wise(system, code, ":")
            code, system = self._by_concept(rows)
        way = self._rows.of_rows(len(rows), ids, table=table.name)
        self._remember(code, system, rows)
        value = None
        if "value" in rows.columns:
            code, value = with_value_or_decile(code, rows.columns["value"], rows.columns.get("text"))
        day = as_days(rows.columns["time"]) if self._days_of_events and "time" in rows.columns else None
        record, patient = self.who(rows)
        was_number = "code" in rows.numbers and not by_concept
        unit = None if value is None else units_of(rows, self._table, self.lab_units)
        return Events(rows.file, rows.lines, record, code, system, patient, value, day, was_number, way, unit)

    def _by_source(self, table: Table, rows: Rows) -> tuple[pa.StringArray, pa.StringArray]:
        """Source values and their systems."""
        code = stripped(rows.columns["code"])
        domain = EVENT_TABLES[table.name]
        ids = as_ids(rows.columns["source"]) if "source" in rows.columns else np.zeros(len(rows), dtype=np.int64)
        at = self._table.positions(ids)
        if domain == "condition" and self.options.default_vocabulary is not None:
            system = self._table.systems(at, self.options.default_vocabulary)
        elif "code" in rows.numbers:  # whose zeros are lost: no system would know them
            system = self._table.systems(at, domain.upper())
        else:
            unknown = pa.array(at < 0)
            day = rows.columns["time"].filter(unknown) if "time" in rows.columns else None
            shaped = self._shapes.of(domain, code.filter(unknown), ids[at < 0], day, domain.upper())
            system = pc.replace_with_mask(self._table.systems(at, domain.upper()), unknown, shaped)
        return pc.if_else(pc.starts_with(system, "ICD"), without_dots(code), code), system

    def _with_concept(self, table: Table, rows: Rows, rejects: Rejects) -> Rows:
        """Rows that have a standard concept."""
        if "concept" not in rows.columns:
            raise DataError(f"{table.name} has no column {table.takes['concept'][0]}; read it with codes_from=source")
        concept = stripped(rows.columns["concept"])
        none = pc.fill_null(pc.is_in(concept, pa.array(["", "0"])), True).to_numpy(zero_copy_only=False)
        rejects.add("no-concept", rows.lines[none], rows.file)
        return rows.where(~none)

    def _by_concept(self, rows: Rows) -> tuple[pa.StringArray, pa.StringArray]:
        concept = stripped(rows.columns["concept"])
        at = self._table.positions(as_ids(concept))
        code = pc.if_else(pa.array(at >= 0), self._table.codes(at), concept)
        system = self._table.systems(at, "OMOP")
        return pc.if_else(pc.starts_with(system, "ICD"), without_dots(code), code), system

    def _remember(self, code: pa.StringArray, system: pa.StringArray, rows: Rows) -> None:
        """The concepts of codes, as far as the concept table has them."""
        if len(self._table) == 0:
            return
        nowhere = np.full(len(rows), -1)
        source, standard = (
            self._table.positions(as_ids(rows.columns[role])) if role in rows.columns else nowhere
            for role in ("source", "concept")
        )
        if self.options.codes_from == "concept":
            source = nowhere  # a concept has many
        seen = pa.table({"code": code, "system": system, "source": source, "standard": standard})
        seen = seen.filter(pc.or_(pc.greater_equal(seen["source"], 0), pc.greater_equal(seen["standard"], 0)))
        for row in seen.group_by(list(seen.column_names)).aggregate([]).to_pylist():
            name = f"{row['system']}:{row['code']}"
            if name not in self.concepts:
                known = (self._table.concept(row[role]) for role in ("source", "standard"))
                self.concepts[name] = CodeConcepts(*known)

    def _describe(self) -> None:
        """Put names and the like to the concepts that were met."""
        if self._concept_file is None:
            return
        table, file = self._concept_file
        again = replace(file)  # what was counted against the upload's limit is not counted twice
        every = chain(self.ways, *self.kinds.values())
        met = {number for each in every for number in concept_ids(each)} | self.lab_units.concept_ids()
        rows = read_rows(again, table.columns(file), Rejects())
        self.described = {each.concept_id: each for each in self._table.described(met, rows)}

        self.lab_units.names = {number: each.name for number, each in self.described.items() if each.name}
        for number in {visit.concept for visit in self._visits.found} & self.lab_units.names.keys():
            self.names[f"{VISIT_SYSTEM}:{number}"] = self.lab_units.names[number]

        def better(concept: Concept | None) -> Concept | None:
            return None if concept is None else self.described.get(concept.concept_id, concept)

        for code, known in self.concepts.items():
            self.concepts[code] = CodeConcepts(better(known.source), better(known.standard))


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
