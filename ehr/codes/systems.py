"""Coding systems: the name in our codes, and what OMOP, FHIR and others call them."""

from dataclasses import dataclass
from typing import Literal

Domain = Literal["condition", "procedure", "drug", "measurement", "observation"]

SEX, AGE = "SEX", "AGE"
BIRTH = "BIRTH"  # ten years in which a patient was born; of histories, and only if that was asked for
ABOUT_PATIENTS = (SEX, AGE, BIRTH)
VISIT = "VISIT"  # what kind of visit a record is, by the id of its concept in OMOP
OTHER_VISIT = f"{VISIT}:0"  # a kind that few have, or that is not known
LOCAL_URL = "urn:ehr-d3pm:code-system:"
# Leading zeros are part of these codes: as numbers they are other codes.
ZEROS_MATTER = ("ICD", "NDC", "CPT", "HCPCS")
LARGEST_ID = 2**31 - 1  # in a CDM
DECILE = "#D"
DECILES = tuple(f"D{number}" for number in range(1, 11))


@dataclass(frozen=True)
class System:
    name: str
    domain: Domain
    omop: str  # vocabulary_id
    fhir: str  # URL


SYSTEMS: tuple[System, ...] = (
    System("ICD9DX", "condition", "ICD9CM", "http://hl7.org/fhir/sid/icd-9-cm"),
    System("ICD9PX", "procedure", "ICD9Proc", "http://hl7.org/fhir/sid/icd-9-cm/procedure"),
    System("ICD10CM", "condition", "ICD10CM", "http://hl7.org/fhir/sid/icd-10-cm"),
    System("ICD10PCS", "procedure", "ICD10PCS", "http://www.cms.gov/Medicare/Coding/ICD10"),
    System("ICD10", "condition", "ICD10", "http://hl7.org/fhir/sid/icd-10"),
    System("SNOMED", "condition", "SNOMED", "http://snomed.info/sct"),
    System("CPT", "procedure", "CPT4", "http://www.ama-assn.org/go/cpt"),
    System("HCPCS", "procedure", "HCPCS", "https://www.cms.gov/Medicare/Coding/HCPCSReleaseCodeSets"),
    System("NDC", "drug", "NDC", "http://hl7.org/fhir/sid/ndc"),
    System("RXNORM", "drug", "RxNorm", "http://www.nlm.nih.gov/research/umls/rxnorm"),
    System("LOINC", "measurement", "LOINC", "http://loinc.org"),
    # a code whose table is known but whose system is not
    System("CONDITION", "condition", "CONDITION", f"{LOCAL_URL}CONDITION"),
    System("PROCEDURE", "procedure", "PROCEDURE", f"{LOCAL_URL}PROCEDURE"),
    System("DRUG", "drug", "DRUG", f"{LOCAL_URL}DRUG"),
    System("MEASUREMENT", "measurement", "MEASUREMENT", f"{LOCAL_URL}MEASUREMENT"),
)
BY_NAME = {system.name: system for system in SYSTEMS}
BY_OMOP = {system.omop.lower(): system.name for system in SYSTEMS}
BY_FHIR = {system.fhir: system.name for system in SYSTEMS} | {"urn:oid:2.16.840.1.113883.6.90": "ICD10CM"}


def split_code(code: str) -> tuple[str, str]:
    """('ICD10CM', 'E11') of 'ICD10CM:E11'. Whatever stands before a colon is a system, also where nothing follows it;
    a code without a colon names none."""
    system, colon, rest = code.partition(":")
    return (system, rest) if colon else ("", code)


def is_about_patient(code: str) -> bool:
    """Whether a code says who a patient is, at every visit, and not what a visit found."""
    return split_code(code)[0] in ABOUT_PATIENTS


def domain_of(system: str) -> Domain:
    """The kind of fact a code states; a system nobody has listed states observations."""
    return BY_NAME[system].domain if system in BY_NAME else "observation"


def split_decile(code: str) -> tuple[str, str]:
    """(`2345-7`, `D7`) of `2345-7#D7`; the second is empty for other codes."""
    stem, mark, number = code.rpartition(DECILE)
    return (stem, f"D{number}") if mark and f"D{number}" in DECILES else (code, "")


def split_lab(code: str) -> tuple[str, str, str]:
    """(`LOINC`, `2345-7`, `D7`) of `LOINC:2345-7#D7`; the last is empty for other codes."""
    system, rest = split_code(code)
    return (system, *split_decile(rest))


def without_decile(code: str) -> str:
    """`LOINC:2345-7` of `LOINC:2345-7#D7`; other codes as they are."""
    return split_decile(code)[0]


def age_band(age: int) -> str:
    return f"{AGE}:90+" if age >= 90 else f"{AGE}:{age // 10 * 10}-{age // 10 * 10 + 9}"


def birth_band(year: int) -> str:
    return f"{BIRTH}:{year // 10 * 10}-{year // 10 * 10 + 9}"


def band_start(code: str) -> int:
    """The first year of an age band, as `age_band` writes it."""
    return int(split_code(code)[1].rstrip("+").split("-")[0])


def band_middle(code: str) -> float | None:
    """The age in the middle of a band such as `AGE:18-34`; of `AGE:80+` five years after it begins. None for other
    codes."""
    system, band = split_code(code)
    first, _, last = band.removesuffix("+").partition("-")
    if system != AGE or not first.isdecimal() or (last and not last.isdecimal()):
        return None
    return (int(first) + int(last) + 1) / 2 if last else int(first) + 5.0


def visit_concept(code: str) -> int | None:
    """9201 of `VISIT:9201`; None for other codes, and for what is no id of a CDM."""
    system, number = split_code(code)
    if system != VISIT or not number.isascii() or not number.isdecimal() or number[0] == "0":
        return None
    return int(number) if int(number) <= LARGEST_ID else None


SEXES = (f"{SEX}:F", f"{SEX}:M")
BANDS = tuple(dict.fromkeys(age_band(age) for age in range(100)))
