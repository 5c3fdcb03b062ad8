"""A small OMOP CDM of invented patients, with what makes real ones difficult."""

import csv
import io

import numpy as np

DIABETES, HYPERTENSION = "25000", "4019"
INSULIN = 46234047  # a standard concept that the concept table does not have
CONCEPTS = (  # id, name, domain, vocabulary, class, standard, code
    (44833365, "Diabetes without complication", "Condition", "ICD9CM", "5-dig billing code", "", DIABETES),
    (44820682, "Unspecified essential hypertension", "Condition", "ICD9CM", "4-dig billing code", "", HYPERTENSION),
    (44827641, "Unspecified septicemia", "Condition", "ICD9CM", "4-dig billing code", "", "0389"),
    (44826499, "Single liveborn", "Observation", "ICD9CM", "5-dig billing V code", "", "V3000"),
    (2001481, "Other operations on spinal canal", "Procedure", "ICD9Proc", "4-dig billing code", "S", "0389"),
    (45144375, "insulin lispro 100 UNT/ML", "Drug", "NDC", "11-digit NDC", "", "00002751001"),
    (3004501, "Glucose in Serum", "Measurement", "LOINC", "Lab Test", "S", "2345-7"),
    (201826, "Type 2 diabetes mellitus", "Condition", "SNOMED", "Clinical Finding", "S", "44054006"),
    (8753, "millimole per liter", "Unit", "UCUM", "Unit", "S", "mmol/L"),
)  # fmt: skip


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
        sources = {concept[-1]: concept[0] for concept in CONCEPTS if concept[3] == "ICD9CM"}
        for code in has:
            standard = 201826 if code == DIABETES else 0
            conditions.append([number, person, standard, "2019-06-01", 32817, visit_id, f"{code:<7}", sources[code]])
            number += 1
        if rng.random() < 0.4:
            procedures.append([number, person, 2001481, "2019-06-02", 32817, visit_id, "0389", 2001481])
        if sick or rng.random() < 0.1:
            drugs.append(
                [number, person, INSULIN, "2019-06-02", "2019-06-03", 32817, visit_id, "00002751001", 45144375]
            )
        value = round(float(rng.normal(9 if sick else 5, 1)), 2)
        labs.append([number, person, 3004501, "2019-06-02", 32817, value, visit_id, "2345-7", 3004501, 8753, "mmol/l"])
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
            " value_as_number visit_occurrence_id measurement_source_value measurement_source_concept_id"
            " unit_concept_id unit_source_value",
            labs,
        ),
        "concept.csv": _csv(
            "concept_id concept_name domain_id vocabulary_id concept_class_id standard_concept concept_code",
            [list(concept) for concept in CONCEPTS],
        ),
    }


def _csv(header: str, rows: list[list[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([header.split(), *rows])
    return text.getvalue().encode()
