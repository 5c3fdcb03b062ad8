"""Checks of OHDSI's DataQualityDashboard that need no vocabulary beyond the CDM's own, as SQL for DuckDB and Postgres.

Types, keys and what may not be null (cdmField, cdmDatatype, isRequired, isPrimaryKey, isForeignKey) are constraints of
the tables. Left out is what a cohort has no table for (eras, deaths) and what is about single concepts of the public
vocabularies (plausibleGender, plausibleUnitConceptIds).
"""

from collections.abc import Iterator

from benchmarks._cdm54 import EVENTS, columns

DOMAINS = {
    ("person", "gender_concept_id"): "Gender",
    ("person", "race_concept_id"): "Race",
    ("person", "ethnicity_concept_id"): "Ethnicity",
    ("observation_period", "period_type_concept_id"): "Type Concept",
    ("visit_occurrence", "visit_concept_id"): "Visit",
    ("visit_occurrence", "visit_type_concept_id"): "Type Concept",
    ("condition_occurrence", "condition_concept_id"): "Condition",
    ("drug_exposure", "drug_concept_id"): "Drug",
    ("procedure_occurrence", "procedure_concept_id"): "Procedure",
    ("measurement", "measurement_concept_id"): "Measurement",
    **{(table, f"{prefix}_type_concept_id"): "Type Concept" for table, prefix in EVENTS.items()},
}
STANDARD = (*DOMAINS, ("observation", "observation_concept_id"))
SPANS = {
    "observation_period": ("observation_period_start_date", "observation_period_end_date"),
    "visit_occurrence": ("visit_start_date", "visit_end_date"),
    "condition_occurrence": ("condition_start_date", "condition_end_date"),
    "drug_exposure": ("drug_exposure_start_date", "drug_exposure_end_date"),
    "procedure_occurrence": ("procedure_date", "procedure_end_date"),
}
PERIODS = "observation_period p join observation_period o on p.person_id = o.person_id"


def checks() -> Iterator[tuple[str, str]]:
    """(name, query that counts the rows which break it)."""
    for name, sql in _checks():
        yield name, f"select count(*) from {sql}"


def _checks() -> Iterator[tuple[str, str]]:
    for (table, column), domain in DOMAINS.items():
        joined = f"{table} t join concept c on c.concept_id = t.{column} where c.concept_id <> 0"
        yield f"fkDomain {table}.{column}", f"{joined} and c.domain_id <> '{domain}'"
    for table, column in STANDARD:
        joined = f"{table} t join concept c on c.concept_id = t.{column} where c.concept_id <> 0"
        wrong = "(c.standard_concept is null or c.standard_concept <> 'S' or c.invalid_reason is not null)"
        yield f"isStandardValidConcept {table}.{column}", f"{joined} and {wrong}"
    for table in ("observation_period", "visit_occurrence"):
        yield f"measurePersonCompleteness {table}", f"person where person_id not in (select person_id from {table})"
    overlap = (
        "p.observation_period_id <> o.observation_period_id and"
        " p.observation_period_start_date <= o.observation_period_end_date and"
        " o.observation_period_start_date <= p.observation_period_end_date"
    )
    yield "measureObservationPeriodOverlap", f"{PERIODS} where {overlap}"
    yield "plausibleValueLow person.year_of_birth", "person where year_of_birth < 1850"
    yield "plausibleValueHigh person.year_of_birth", "person where year_of_birth > 2021"
    for table, (start, end) in SPANS.items():
        yield f"plausibleStartBeforeEnd {table}", f"{table} where {start} > {end}"
    for table in (*SPANS, *EVENTS):
        for column in columns(table):
            if column.type == "date":
                born = f"{table} t join person b on b.person_id = t.person_id"
                yield (
                    f"plausibleAfterBirth {table}.{column.name}",
                    f"{born} where t.{column.name} < make_date(b.year_of_birth, 1, 1)",
                )
    for table, prefix in EVENTS.items():
        visit = f"{table} t join visit_occurrence v on v.visit_occurrence_id = t.visit_occurrence_id"
        day = next(column.name for column in columns(table) if column.type == "date")
        yield f"withinVisitDates {table}", f"{visit} where t.{day} not between v.visit_start_date and v.visit_end_date"
        yield f"visit of another person: {table}", f"{visit} where t.person_id <> v.person_id"
        yield f"event without visit: {table}", f"{table} where visit_occurrence_id is null"
        yield f"measureValueCompleteness {table}", f"{table} where {prefix}_source_value is null"
        inside = f"select 1 from observation_period p where p.person_id = t.person_id and t.{day} between"
        inside += " p.observation_period_start_date and p.observation_period_end_date"
        yield f"observed {table}", f"{table} t where not exists ({inside})"
