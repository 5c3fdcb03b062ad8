"""A small OMOP CDM of invented patients, with what makes real ones difficult."""

import csv
import io

import numpy as np

DIABETES, HYPERTENSION = "25000", "4019"
CONCEPTS = (
    (44833365, "ICD9CM", DIABETES, ""),
    (44820682, "ICD9CM", HYPERTENSION, ""),
    (44827641, "ICD9CM", "0389", ""),
    (44826499, "ICD9CM", "V3000", ""),
    (2001481, "ICD9Proc", "0389", ""),
    (45144375, "NDC", "00002751001", ""),
    (3004501, "LOINC", "2345-7", "S"),
    (201826, "SNOMED", "44054006", "S"),
)


def omop_tables(visits: int = 600, seed: int = 0) -> dict[str, bytes]:
    """File name -> CSV. Half of the patients with diabetes have hypertension too; their glucose is high."""
    rng = np.random.default_rng(seed)
    people, stays, conditions, procedures, drugs, labs = ([] for _ in range(6))
    number = 0
    for visit in range(visits):
        person = -(2**62) + visit // 2
        visit_id = 2**62 + 7 * visit
        if visit % 2 == 0:
            people.append([person, 8507 if visit % 4 else 8532, 1940 + visit % 60, 0, 0])
        stays.append([visit_id, person, 9201, "2019-06-01", "2019-06-04", 32817])
        sick = rng.random() < 0.3
        has = [DIABETES] * sick + [HYPERTENSION] * (rng.random() < (0.8 if sick else 0.2))
        has += ["0389"] * (rng.random() < 0.2) + ["V3000"] * (rng.random() < 0.2)
        sources = {code: number for number, system, code, _ in CONCEPTS if system == "ICD9CM"}
        for code in has:
            standard = 201826 if code == DIABETES else 0
            conditions.append([number, person, standard, "2019-06-01", 32817, visit_id, f"{code:<7}", sources[code]])
            number += 1
        if rng.random() < 0.4:
            procedures.append([number, person, 0, "2019-06-02", 32817, visit_id, "0389", 2001481])
        if sick or rng.random() < 0.1:
            drugs.append([number, person, 0, "2019-06-02", "2019-06-03", 32817, visit_id, "00002751001", 45144375])
        value = round(float(rng.normal(9 if sick else 5, 1)), 2)
        labs.append([number, person, 3004501, "2019-06-02", 32817, value, visit_id, "2345-7", 3004501])
        number += 1
    return {
        "person.csv": _csv("person_id gender_concept_id year_of_birth race_concept_id ethnicity_concept_id", people),
        "visit_occurrence.csv": _csv(
            "visit_occurrence_id person_id visit_concept_id visit_start_date visit_end_date visit_type_concept_id",
            stays,
        ),
        "condition_occurrence.csv": _csv(
            "condition_occurrence_id person_id condition_concept_id condition_start_date condition_type_concept_id"
            " visit_occurrence_id condition_source_value condition_source_concept_id",
            conditions,
        ),
        "procedure_occurrence.csv": _csv(
            "procedure_occurrence_id person_id procedure_concept_id procedure_date procedure_type_concept_id"
            " visit_occurrence_id procedure_source_value procedure_source_concept_id",
            procedures,
        ),
        "drug_exposure.csv": _csv(
            "drug_exposure_id person_id drug_concept_id drug_exposure_start_date drug_exposure_end_date"
            " drug_type_concept_id visit_occurrence_id drug_source_value drug_source_concept_id",
            drugs,
        ),
        "measurement.csv": _csv(
            "measurement_id person_id measurement_concept_id measurement_date measurement_type_concept_id"
            " value_as_number visit_occurrence_id measurement_source_value measurement_source_concept_id",
            labs,
        ),
        "concept.csv": _csv("concept_id vocabulary_id concept_code standard_concept", [list(c) for c in CONCEPTS]),
    }


def _csv(header: str, rows: list[list[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([header.split(), *rows])
    return text.getvalue().encode()
