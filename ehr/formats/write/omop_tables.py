"""The tables of the OMOP CDM 5.4 that omop.zip has, and their columns."""

from dataclasses import dataclass

from ehr.codes.systems import Domain
from ehr.formats.write import csv_tables as csv

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


VOCABULARY = csv.names("vocabulary_id vocabulary_name vocabulary_reference vocabulary_version vocabulary_concept_id")
DOMAIN = csv.names("domain_id domain_name domain_concept_id")
CONCEPT_CLASS = csv.names("concept_class_id concept_class_name concept_class_concept_id")


@dataclass(frozen=True)
class Occurrences:
    """A table with a row per code of a domain; `prefix` begins the names of its columns."""

    name: str
    prefix: Domain
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
TABLE_OF: dict[Domain, str] = {table.prefix: table.name for table in OCCURRENCES}
