"""The OMOP CDM 5.4, as far as cohorts have tables of it: types, keys and what may not be null.

After the specification of OHDSI. A column is a name, its type unless the name says it, and `!` if it may not be null;
the first column of a table is its key. Ids are 32-bit integers, `*_source_value` has 50 characters.
"""

from collections.abc import Iterator
from dataclasses import dataclass

_TABLES = {
    "concept": """concept_id! concept_name:255! domain_id:20! vocabulary_id:20! concept_class_id:20! standard_concept:1
        concept_code:50! valid_start_date! valid_end_date! invalid_reason:1""",
    "vocabulary": """vocabulary_id:20! vocabulary_name:255! vocabulary_reference:255 vocabulary_version:255
        vocabulary_concept_id!""",
    "domain": "domain_id:20! domain_name:255! domain_concept_id!",
    "concept_class": "concept_class_id:20! concept_class_name:255! concept_class_concept_id!",
    "cdm_source": """cdm_source_name:255! cdm_source_abbreviation:25! cdm_holder:255! source_description:text
        source_documentation_reference:255 cdm_etl_reference:255 source_release_date! cdm_release_date! cdm_version:10
        cdm_version_concept_id! vocabulary_version:20!""",
    "person": """person_id! gender_concept_id! year_of_birth:integer! month_of_birth:integer day_of_birth:integer
        birth_datetime race_concept_id! ethnicity_concept_id! location_id provider_id care_site_id person_source_value
        gender_source_value gender_source_concept_id race_source_value race_source_concept_id ethnicity_source_value
        ethnicity_source_concept_id""",
    "observation_period": """observation_period_id! person_id! observation_period_start_date!
        observation_period_end_date! period_type_concept_id!""",
    "visit_occurrence": """visit_occurrence_id! person_id! visit_concept_id! visit_start_date! visit_start_datetime
        visit_end_date! visit_end_datetime visit_type_concept_id! provider_id care_site_id visit_source_value
        visit_source_concept_id admitted_from_concept_id admitted_from_source_value discharged_to_concept_id
        discharged_to_source_value preceding_visit_occurrence_id""",
    "condition_occurrence": """condition_occurrence_id! person_id! condition_concept_id! condition_start_date!
        condition_start_datetime condition_end_date condition_end_datetime condition_type_concept_id!
        condition_status_concept_id stop_reason:20 provider_id visit_occurrence_id visit_detail_id
        condition_source_value condition_source_concept_id condition_status_source_value""",
    "drug_exposure": """drug_exposure_id! person_id! drug_concept_id! drug_exposure_start_date!
        drug_exposure_start_datetime drug_exposure_end_date! drug_exposure_end_datetime verbatim_end_date
        drug_type_concept_id! stop_reason:20 refills:integer quantity:numeric days_supply:integer sig:text
        route_concept_id lot_number:50 provider_id visit_occurrence_id visit_detail_id drug_source_value
        drug_source_concept_id route_source_value dose_unit_source_value""",
    "procedure_occurrence": """procedure_occurrence_id! person_id! procedure_concept_id! procedure_date!
        procedure_datetime procedure_end_date procedure_end_datetime procedure_type_concept_id! modifier_concept_id
        quantity:integer provider_id visit_occurrence_id visit_detail_id procedure_source_value
        procedure_source_concept_id modifier_source_value""",
    "measurement": """measurement_id! person_id! measurement_concept_id! measurement_date! measurement_datetime
        measurement_time:10 measurement_type_concept_id! operator_concept_id value_as_number:numeric
        value_as_concept_id unit_concept_id range_low:numeric range_high:numeric provider_id visit_occurrence_id
        visit_detail_id measurement_source_value measurement_source_concept_id unit_source_value
        unit_source_concept_id value_source_value measurement_event_id meas_event_field_concept_id""",
    "observation": """observation_id! person_id! observation_concept_id! observation_date! observation_datetime
        observation_type_concept_id! value_as_number:numeric value_as_string:60 value_as_concept_id
        qualifier_concept_id unit_concept_id provider_id visit_occurrence_id visit_detail_id observation_source_value
        observation_source_concept_id unit_source_value qualifier_source_value value_source_value
        observation_event_id obs_event_field_concept_id""",
}
WITHOUT_KEY = ("cdm_source",)
KEYS_INTO = ("person", "visit_occurrence", "domain", "vocabulary", "concept_class")


@dataclass(frozen=True)
class Column:
    table: str
    name: str
    type: str
    required: bool
    is_key: bool

    @property
    def refers_to(self) -> str | None:
        """The table whose key it is."""
        if self.is_key:
            return None
        if self.name.endswith("concept_id"):
            return "concept"
        name = self.name.removeprefix("preceding_").removesuffix("_id")
        return name if name in KEYS_INTO and self.name.endswith("_id") else None

    @property
    def definition(self) -> str:
        return f"{self.name} {self.type}{' not null' if self.required else ''}{' primary key' if self.is_key else ''}"


def columns(table: str) -> list[Column]:
    found = []
    for position, word in enumerate(_TABLES[table].split()):
        name, _, kind = word.removesuffix("!").partition(":")
        length = "50" if name.endswith("_source_value") else kind
        is_key = position == 0 and table not in WITHOUT_KEY
        found.append(Column(table, name, _type(name, length), word.endswith("!"), is_key))
    return found


def _type(name: str, kind: str) -> str:
    if kind:
        return f"varchar({kind})" if kind.isdecimal() else kind
    endings = {"_datetime": "timestamp", "_date": "date", "_id": "integer"}
    return next(sql for ending, sql in endings.items() if name.endswith(ending))


def tables() -> tuple[str, ...]:
    return tuple(_TABLES)


def create(table: str) -> str:
    return f"create table {table} ({', '.join(column.definition for column in columns(table))})"


def foreign_keys() -> Iterator[Column]:
    """All columns that refer to a table of the zip."""
    return (column for table in tables() for column in columns(table) if column.refers_to is not None)
