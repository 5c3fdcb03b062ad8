"""omop.zip: a cohort as tables of the OMOP CDM 5.4. One person with one visit for each record, or with those of a
history.

Columns that may not be null are filled, and texts are cut to what the CDM has room for. A code stands in the table and
has the concepts that it had in the CDM the cohort was learned from. Of other uploads its standard concept is 0 and its
source concept a local one (from 2 billion), which the zip's concept table explains.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ehr.canonical_json import to_json
from ehr.codes.systems import split_code
from ehr.formats.cdm import Period, Person, SourceCdm
from ehr.formats.concepts import Concept
from ehr.formats.write import csv_tables as csv
from ehr.formats.write import draws
from ehr.formats.write import omop_tables as tables
from ehr.formats.write import omop_vocabulary as vocabulary
from ehr.formats.write.dates import birth_year
from ehr.formats.write.lab_values import LabValues, as_texts
from ehr.formats.write.omop_rows import CodeRows, numbered_blocks
from ehr.formats.write.people import People
from ehr.formats.write.protocol import Block, CohortSource, Ints, Writer
from ehr.formats.write.stays import Stays
from ehr.formats.write.zips import ZipStream

SEXES = {"SEX:M": (8507, "M"), "SEX:F": (8532, "F")}
DRAWN = (
    "race, ethnicity, the types of visits and observation periods, and the concepts of visits whose record has no code"
    " VISIT are drawn for each record by itself, by the shares they had in the upload among those that at least 11"
    " patients have; they say nothing about its codes"
)


@dataclass(frozen=True)
class Cdm:
    """A cohort, seen as a CDM."""

    cohort: CohortSource
    source: SourceCdm
    persons: People
    code_rows: CodeRows

    def people(self) -> Iterator[bytes]:
        kinds = self.source.people or ((1.0, Person()),)
        for block, record, people in self.persons.all():
            sexes = [SEXES.get(person.sex or "", (0, "")) for person in people]
            years = np.array([birth_year(person.age, self.cohort.first_year) for person in people], dtype=np.int64)
            own, kind = csv.numbers(record), self._drawn(draws.PEOPLE, kinds, record)
            cells: dict[str, Any] = {"person_id": own, "person_source_value": own, "gender_source_concept_id": "0"}
            cells["gender_concept_id"] = csv.numbers(np.array([number for number, _ in sexes], dtype=np.int64))
            cells["gender_source_value"] = csv.by_code([text for _, text in sexes], np.arange(len(sexes)))
            cells["year_of_birth"] = csv.numbers(years)
            born = block.dates()[block.firsts()].astype(object)
            for column in ("month", "day"):  # of newborns; of others it is not known
                texts = [str(getattr(born[i], column)) if who.is_newborn else "" for i, who in enumerate(people)]
                cells[f"{column}_of_birth"] = pa.array(texts, pa.string())
            for name in ("race", "ethnicity"):
                for column, field in (("concept_id", name), ("source_concept_id", f"{name}_source")):
                    cells[f"{name}_{column}"] = _texts(kinds, field, kind)
                cells[f"{name}_source_value"] = _texts(kinds, f"{name}_source_value", kind)
            yield csv.lines(tables.PERSON, cells, len(record))

    def periods(self) -> Iterator[bytes]:
        """A period is as long as the record's visit, or from the first to the last of them."""
        kinds = self.source.periods or ((1.0, Period(self.source.otherwise.type)),)
        for block in self.cohort.blocks():
            firsts = block.firsts()
            record, dates = block.people()[firsts], block.dates()
            begin, end = csv.days(dates[firsts]), csv.days(dates[np.append(firsts[1:], len(dates)) - 1])
            own = csv.numbers(record)
            cells = {"observation_period_id": own, "person_id": own}
            types = {"period_type_concept_id": _texts(kinds, "type", self._drawn(draws.PERIODS, kinds, record))}
            days = {"observation_period_start_date": begin, "observation_period_end_date": end}
            yield csv.lines(tables.PERIOD, cells | types | days, len(record))

    def visits(self) -> Iterator[bytes]:
        kinds = self._stays.kinds
        for block, kind in self._stays.all():
            own, day = csv.numbers(block.numbers()), csv.days(block.dates())
            whose = csv.numbers(block.people())
            cells = {"visit_occurrence_id": own, "person_id": whose, "visit_source_value": own}
            fields = {
                "visit_concept_id": "concept",
                "visit_type_concept_id": "type",
                "visit_source_concept_id": "source",
            }
            concepts = {column: _texts(kinds, field, kind) for column, field in fields.items()}
            dates = {"visit_start_date": day, "visit_end_date": day}
            yield csv.lines(tables.VISIT, cells | concepts | dates, len(block.records))

    def _drawn(self, what: int, kinds: tuple[tuple[float, Any], ...], record: Ints) -> Ints:
        """A kind for each record of a block."""
        rng = draws.generator(self.cohort.seed, what, int(record[0]))
        return draws.drawn([share for share, _ in kinds], len(record), rng)

    def occurrences(self, table: tables.Occurrences) -> Iterator[bytes]:
        """A pass over the cohort for each table; none if no code of the vocabulary belongs there."""
        if any(row.table == table.name for row in self.code_rows.all):
            for first, block in numbered_blocks(self.cohort):
                yield self._occurrences_of(table, first, block)

    def _occurrences_of(self, table: tables.Occurrences, first: int, block: Block) -> bytes:
        row, _ = block.rows()
        event, which = self.code_rows.of(block)
        mine = self._belongs[table.name][which] & ~self.persons.said_by_person(block)[event]
        event, which = event[mine], which[mine]
        record = row[event]
        day = csv.days(block.dates()[record])
        cells: dict[str, Any] = {
            table.columns[0]: csv.numbers(first + event + self._columns_nth[which] * self._n_events),
            "person_id": csv.numbers(block.people()[record]),
            "visit_occurrence_id": csv.numbers(record + block.first_record),
            **{f"{table.prefix}_{name}": texts.take(pa.array(which)) for name, texts in self._columns.items()},
            **dict.fromkeys(table.days, day),
        }
        if table.prefix in ("measurement", "observation"):
            cells |= self._measured(block, event)
        return csv.lines(table.columns, cells, len(record))

    def _measured(self, block: Block, event: Ints) -> dict[str, pa.StringArray]:
        """What was measured: a number where the code has one, else its decile."""
        numbers, code = as_texts(self.labs.of(block)[event]), block.rows()[1][event]
        units = self.labs.units
        return {
            "value_as_number": pc.fill_null(numbers, ""),
            "value_source_value": pc.coalesce(numbers, csv.by_code(self.labs.deciles, code)),
            "unit_concept_id": csv.by_code(["" if u.concept_id is None else str(u.concept_id) for u in units], code),
            "unit_source_value": csv.by_code([unit.text[: vocabulary.LONG] for unit in units], code),
        }

    @cached_property
    def labs(self) -> LabValues:
        return LabValues(self.cohort)

    @cached_property
    def _n_events(self) -> int:
        return self.cohort.count_codes()

    @cached_property
    def _belongs(self) -> dict[str, Any]:
        """table -> which of the rows that codes can be stand there."""
        return {
            table.name: np.array([row.table == table.name for row in self.code_rows.all], dtype=bool)
            for table in tables.OCCURRENCES
        }

    @cached_property
    def _columns_nth(self) -> Ints:
        """A code's second row cannot have the id of its first."""
        return np.array([row.nth for row in self.code_rows.all], dtype=np.int64)

    @cached_property
    def _columns(self) -> dict[str, pa.StringArray]:
        """Columns that every event table has, without their prefix: a text for each row that a code can be."""
        rows = self.code_rows.all
        texts = {
            "concept_id": [str(row.standard) for row in rows],
            "type_concept_id": [str(row.type) for row in rows],
            "source_concept_id": [str(row.source) for row in rows],
            "source_value": [split_code(row.source_code)[1][: vocabulary.LONG] for row in rows],
        }
        return {name: csv.by_code(column, np.arange(len(rows))) for name, column in texts.items()}

    @cached_property
    def concepts(self) -> dict[int, Concept]:
        known = self.source, self.cohort.concepts, self.labs.units
        visits = [visit for _, visit in self._stays.kinds]
        return vocabulary.concepts_of(self.code_rows.all, *known, self.cohort.name_of, visits)

    @cached_property
    def _stays(self) -> Stays:
        return Stays(self.cohort, self.source, self.persons)

    def about(self) -> Iterator[bytes]:
        yield csv.one_row(
            tables.CDM_SOURCE,
            {
                "cdm_source_name": "synthetic cohort",
                "cdm_source_abbreviation": "synthetic",
                "cdm_holder": "EHR-D3PM",
                "source_description": f"Synthetic: nobody's data. {self.cohort.about_dates}; {DRAWN}",
                "source_release_date": "2020-01-01",
                "cdm_release_date": "2020-01-01",
                "cdm_version": "5.4",
                "cdm_version_concept_id": 0,
                "vocabulary_version": "none",
            },
        )


def _texts(kinds: tuple[tuple[float, Any], ...], field: str, kind: Ints) -> pa.StringArray:
    """A field of the kind of each row."""
    return csv.by_code([str(getattr(each, field))[: vocabulary.LONG] for _, each in kinds], kind)


def cdm_tables(cohort: CohortSource) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Name and CSV of each table, with a header; written as it is read."""
    source = cohort.cdm() or SourceCdm()
    cdm = Cdm(cohort, source, People(cohort), CodeRows(cohort, source))
    yield "cdm_source", csv.table(tables.CDM_SOURCE, cdm.about())
    yield "person", csv.table(tables.PERSON, cdm.people())
    yield "observation_period", csv.table(tables.PERIOD, cdm.periods())
    yield "visit_occurrence", csv.table(tables.VISIT, cdm.visits())
    for table in tables.OCCURRENCES:
        yield table.name, csv.table(table.columns, cdm.occurrences(table))
    yield "concept", csv.table(tables.CONCEPT, vocabulary.concept_rows(cdm.concepts))
    yield "vocabulary", csv.table(tables.VOCABULARY, vocabulary.vocabulary_rows(cdm.concepts))
    yield "domain", csv.table(tables.DOMAIN, vocabulary.domain_rows(cdm.concepts))
    yield "concept_class", csv.table(tables.CONCEPT_CLASS, vocabulary.class_rows(cdm.concepts))


def write_omop(cohort: CohortSource) -> Iterator[bytes]:
    stream = ZipStream()
    said = {**cohort.manifest, "dates": cohort.about_dates, "drawn": DRAWN}
    yield from stream.file("manifest.json", [to_json(said)])
    for name, blocks in cdm_tables(cohort):
        yield from stream.file(f"{name}.csv", blocks)
    yield stream.end()


OMOP_ZIP = Writer(
    "omop.zip",
    "application/zip",
    "omop.zip",
    write_omop,
    "what codes have beyond 50 characters; a lab's decile whose numbers are not known stands in value_source_value;"
    " records without codes are visits without occurrences, which readers take for no records; dates are synthesised",
)
