"""omop.zip: a cohort as tables of the OMOP CDM 5.4. One person with one visit for each record.

Columns that may not be null are filled. A code keeps the concepts it had in the upload's concept table; without one its
standard concept is 0 and its source concept a local one (above 2 billion), which the zip's concept table explains.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ehr.canonical_json import to_json
from ehr.codes.systems import BY_NAME, domain_of, split_lab, without_decile
from ehr.formats.concepts import CodeConcepts, Concept
from ehr.formats.write import csv_tables as csv
from ehr.formats.write.dates import SYNTHETIC_DATES, birth_year, days_of
from ehr.formats.write.people import People
from ehr.formats.write.protocol import Block, CohortSource, Writer
from ehr.formats.write.zips import ZipStream

LOCAL_CONCEPTS = 2_000_000_000
SEXES = {"SEX:M": (8507, "M"), "SEX:F": (8532, "F")}
FIXED = ((0, "No matching concept", "None"), (8507, "M", "Gender"), (8532, "F", "Gender"))

PERSON = csv.names(
    "person_id gender_concept_id year_of_birth month_of_birth day_of_birth birth_datetime"
    " race_concept_id ethnicity_concept_id location_id provider_id care_site_id person_source_value"
    " gender_source_value gender_source_concept_id race_source_value race_source_concept_id"
    " ethnicity_source_value ethnicity_source_concept_id"
)
PERIOD = csv.names(
    "observation_period_id person_id observation_period_start_date observation_period_end_date period_type_concept_id"
)
VISIT = csv.names(
    "visit_occurrence_id person_id visit_concept_id visit_start_date visit_start_datetime"
    " visit_end_date visit_end_datetime visit_type_concept_id provider_id care_site_id"
    " visit_source_value visit_source_concept_id admitted_from_concept_id admitted_from_source_value"
    " discharged_to_concept_id discharged_to_source_value preceding_visit_occurrence_id"
)
CDM_SOURCE = csv.names(
    "cdm_source_name cdm_source_abbreviation cdm_holder source_description"
    " source_documentation_reference cdm_etl_reference source_release_date cdm_release_date cdm_version"
    " cdm_version_concept_id vocabulary_version"
)
CONCEPT = csv.names(
    "concept_id concept_name domain_id vocabulary_id concept_class_id standard_concept concept_code"
    " valid_start_date valid_end_date invalid_reason"
)


@dataclass(frozen=True)
class Occurrences:
    """A table with a row per code of a domain; `prefix` begins the names of its columns."""

    name: str
    prefix: str
    days: tuple[str, ...]
    columns: tuple[str, ...]


OCCURRENCES: tuple[Occurrences, ...] = (
    Occurrences(
        "condition_occurrence",
        "condition",
        ("condition_start_date",),
        csv.names(
            "condition_occurrence_id person_id condition_concept_id condition_start_date"
            " condition_start_datetime condition_end_date condition_end_datetime condition_type_concept_id"
            " condition_status_concept_id stop_reason provider_id visit_occurrence_id visit_detail_id"
            " condition_source_value condition_source_concept_id condition_status_source_value"
        ),
    ),
    Occurrences(
        "procedure_occurrence",
        "procedure",
        ("procedure_date",),
        csv.names(
            "procedure_occurrence_id person_id procedure_concept_id procedure_date procedure_datetime"
            " procedure_end_date procedure_end_datetime procedure_type_concept_id modifier_concept_id quantity"
            " provider_id visit_occurrence_id visit_detail_id procedure_source_value procedure_source_concept_id"
            " modifier_source_value"
        ),
    ),
    Occurrences(
        "drug_exposure",
        "drug",
        ("drug_exposure_start_date", "drug_exposure_end_date"),
        csv.names(
            "drug_exposure_id person_id drug_concept_id drug_exposure_start_date drug_exposure_start_datetime"
            " drug_exposure_end_date drug_exposure_end_datetime verbatim_end_date drug_type_concept_id"
            " stop_reason refills quantity days_supply sig route_concept_id lot_number provider_id"
            " visit_occurrence_id visit_detail_id drug_source_value drug_source_concept_id route_source_value"
            " dose_unit_source_value"
        ),
    ),
    Occurrences(
        "measurement",
        "measurement",
        ("measurement_date",),
        csv.names(
            "measurement_id person_id measurement_concept_id measurement_date measurement_datetime"
            " measurement_time measurement_type_concept_id operator_concept_id value_as_number"
            " value_as_concept_id unit_concept_id range_low range_high provider_id visit_occurrence_id"
            " visit_detail_id measurement_source_value measurement_source_concept_id unit_source_value"
            " unit_source_concept_id value_source_value measurement_event_id meas_event_field_concept_id"
        ),
    ),
    Occurrences(
        "observation",
        "observation",
        ("observation_date",),
        csv.names(
            "observation_id person_id observation_concept_id observation_date observation_datetime"
            " observation_type_concept_id value_as_number value_as_string value_as_concept_id"
            " qualifier_concept_id unit_concept_id provider_id visit_occurrence_id visit_detail_id"
            " observation_source_value observation_source_concept_id unit_source_value qualifier_source_value"
            " value_source_value observation_event_id obs_event_field_concept_id"
        ),
    ),
)


@dataclass(frozen=True)
class Cdm:
    """A cohort, seen as a CDM."""

    cohort: CohortSource
    persons: People

    @cached_property
    def domains(self) -> list[str]:
        """Of each code; a lab's decile is a measurement whatever its system."""
        return ["measurement" if decile else domain_of(system) for system, _, decile in self.parts]

    @cached_property
    def parts(self) -> list[tuple[str, str, str]]:
        """System, stem and decile of each code."""
        return [split_lab(code) for code in self.cohort.vocabulary]

    @cached_property
    def source_concepts(self) -> list[Concept]:
        """Of each code. The ten deciles of a lab share the lab's."""
        made: dict[tuple[str, str], Concept] = {}
        for position, (code, (system, stem, _)) in enumerate(zip(self.cohort.vocabulary, self.parts, strict=True)):
            vocabulary = BY_NAME[system].omop if system in BY_NAME else system or "OBSERVATION"
            local = Concept(LOCAL_CONCEPTS + position, vocabulary, stem)
            made.setdefault((system, stem), self._known(code).source or local)
        return [made[system, stem] for system, stem, _ in self.parts]

    @cached_property
    def standard_concepts(self) -> list[Concept | None]:
        return [self._known(code).standard for code in self.cohort.vocabulary]

    def _known(self, code: str) -> CodeConcepts:
        return self.cohort.concepts.get(without_decile(code), CodeConcepts())

    def people(self) -> Iterator[bytes]:
        for record, people in self.persons.all():
            sexes = [SEXES.get(person.sex or "", (0, "")) for person in people]
            years = np.array([birth_year(person.band) for person in people], dtype=np.int64)
            own = csv.numbers(record)
            zeros = dict.fromkeys((name for name in PERSON if name.endswith("concept_id")), "0")
            cells: dict[str, Any] = zeros | {"person_id": own, "person_source_value": own}
            cells["gender_concept_id"] = csv.numbers(np.array([number for number, _ in sexes], dtype=np.int64))
            cells["gender_source_value"] = csv.by_code([text for _, text in sexes], np.arange(len(sexes)))
            cells["year_of_birth"] = csv.numbers(years)
            yield csv.lines(PERSON, cells, len(record))

    def periods(self) -> Iterator[bytes]:
        for record in self.cohort.numbers():
            own, day = csv.numbers(record), csv.days(days_of(record))
            cells = {"observation_period_id": own, "person_id": own, "period_type_concept_id": "0"}
            dates = {"observation_period_start_date": day, "observation_period_end_date": day}
            yield csv.lines(PERIOD, cells | dates, len(record))

    def visits(self) -> Iterator[bytes]:
        zeros = dict.fromkeys(("visit_concept_id", "visit_type_concept_id", "visit_source_concept_id"), "0")
        for record in self.cohort.numbers():
            own, day = csv.numbers(record), csv.days(days_of(record))
            cells = {"visit_occurrence_id": own, "person_id": own, "visit_source_value": own}
            dates = {"visit_start_date": day, "visit_end_date": day}
            yield csv.lines(VISIT, zeros | cells | dates, len(record))

    def occurrences(self, table: Occurrences) -> Iterator[bytes]:
        """A pass over the cohort for each table; none if no code of the vocabulary belongs there."""
        belongs = np.array([domain == table.prefix for domain in self.domains], dtype=bool)
        if belongs.any():
            for block in self.cohort.blocks():
                yield self._occurrences_of(table, block, belongs)

    def _occurrences_of(self, table: Occurrences, block: Block, belongs: NDArray[np.bool_]) -> bytes:
        row, code = block.rows()
        mine = belongs[code] & ~self.persons.said_by_person(block)
        record, code = row[mine] + block.first_record, code[mine]
        own, day = csv.numbers(record), csv.days(days_of(record))
        standard = [str(concept.concept_id if concept else 0) for concept in self.standard_concepts]
        cells: dict[str, Any] = {
            table.columns[0]: csv.numbers(record * len(self.cohort.vocabulary) + code),
            "person_id": own,
            "visit_occurrence_id": own,
            f"{table.prefix}_concept_id": csv.by_code(standard, code),
            f"{table.prefix}_type_concept_id": "0",
            f"{table.prefix}_source_value": csv.by_code([stem for _, stem, _ in self.parts], code),
            f"{table.prefix}_source_concept_id": csv.by_code([str(c.concept_id) for c in self.source_concepts], code),
            **dict.fromkeys(table.days, day),
        }
        if "value_source_value" in table.columns:
            cells["value_source_value"] = csv.by_code([decile for *_, decile in self.parts], code)
        return csv.lines(table.columns, cells, len(record))

    def concepts(self) -> Iterator[bytes]:
        """Every concept the tables refer to, so that foreign keys hold within the zip."""
        always = {"concept_class_id": "Undefined", "valid_start_date": "1970-01-01", "valid_end_date": "2099-12-31"}
        for number, name, domain in FIXED:
            ids = {"concept_id": number, "concept_name": name, "concept_code": name}
            yield csv.one_row(CONCEPT, always | ids | {"domain_id": domain, "vocabulary_id": domain})
        seen = {number for number, *_ in FIXED}
        pairs = zip(self.domains, self.source_concepts, self.standard_concepts, strict=True)
        for domain, source, standard in pairs:
            for concept, mark in ((source, ""), (standard, "S")):
                if concept is not None and concept.concept_id not in seen:
                    seen.add(concept.concept_id)
                    names = {"concept_name": concept.concept_code, "concept_code": concept.concept_code}
                    ids = {"concept_id": concept.concept_id, "vocabulary_id": concept.vocabulary_id}
                    more = {"domain_id": domain.capitalize(), "standard_concept": mark}
                    yield csv.one_row(CONCEPT, always | names | ids | more)

    def source(self) -> Iterator[bytes]:
        yield csv.one_row(
            CDM_SOURCE,
            {
                "cdm_source_name": "synthetic cohort",
                "cdm_source_abbreviation": "synthetic",
                "cdm_holder": "EHR-D3PM",
                "source_description": f"Synthetic: nobody's data. {SYNTHETIC_DATES}",
                "source_release_date": "2020-01-01",
                "cdm_release_date": "2020-01-01",
                "cdm_version": "5.4",
                "cdm_version_concept_id": 0,
                "vocabulary_version": "none",
            },
        )


def write_omop(cohort: CohortSource) -> Iterator[bytes]:
    cdm = Cdm(cohort, People(cohort))
    stream = ZipStream()
    yield from stream.file("manifest.json", [to_json({**cohort.manifest, "dates": SYNTHETIC_DATES})])
    yield from stream.file("cdm_source.csv", csv.table(CDM_SOURCE, cdm.source()))
    yield from stream.file("person.csv", csv.table(PERSON, cdm.people()))
    yield from stream.file("observation_period.csv", csv.table(PERIOD, cdm.periods()))
    yield from stream.file("visit_occurrence.csv", csv.table(VISIT, cdm.visits()))
    for table in OCCURRENCES:
        yield from stream.file(f"{table.name}.csv", csv.table(table.columns, cdm.occurrences(table)))
    yield from stream.file("concept.csv", csv.table(CONCEPT, cdm.concepts()))
    yield stream.end()


OMOP_ZIP = Writer(
    "omop.zip",
    "application/zip",
    "omop.zip",
    write_omop,
    "values of labs, of which the decile stands in value_source_value; records without codes are visits without"
    " occurrences, which readers take for no records; dates are synthesised",
)
