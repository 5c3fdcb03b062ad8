"""Concepts that every CDM has: of people, visits and where rows come from. An upload's concept table comes first."""

from ehr.formats.cdm import CLAIM, EHR, INPATIENT
from ehr.formats.concepts import Concept


def _concepts(kind: str, *rows: tuple[int, str, str]) -> tuple[Concept, ...]:
    return tuple(Concept(number, kind, code, name, kind, kind, "S") for number, code, name in rows)


GENDERS = _concepts("Gender", (8507, "M", "MALE"), (8532, "F", "FEMALE"))
KNOWN: dict[int, Concept] = {
    concept.concept_id: concept
    for concept in (
        *GENDERS,
        *_concepts(
            "Visit",
            (INPATIENT, "IP", "Inpatient Visit"),
            (9202, "OP", "Outpatient Visit"),
            (9203, "ER", "Emergency Room Visit"),
            (262, "ERIP", "Emergency Room and Inpatient Visit"),
        ),
        *_concepts("Type Concept", (EHR, "OMOP4976890", "EHR"), (CLAIM, "OMOP4976883", "Claim")),
        *_concepts("Race", (8515, "2", "Asian"), (8516, "3", "Black or African American"), (8527, "5", "White")),
        *_concepts(
            "Ethnicity",
            (38003563, "Hispanic", "Hispanic or Latino"),
            (38003564, "Not Hispanic", "Not Hispanic or Latino"),
        ),
    )
}
# concept of a visit -> class of an encounter in FHIR (v3-ActCode), with the places of service that stand for visits
ENCOUNTER_CLASSES = {
    **dict.fromkeys((INPATIENT, 262, 8717, 32037), "IMP"),
    **dict.fromkeys((9202, 8756, 8940, 38004207), "AMB"),
    **dict.fromkeys((9203, 8870), "EMER"),
    **dict.fromkeys((581385,), "OBSENC"),
    **dict.fromkeys((581476,), "HH"),
    **dict.fromkeys((5083,), "VR"),
}
