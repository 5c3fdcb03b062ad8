"""How ICD codes are written, cut to categories and gathered in chapters. Systems go by our names: ICD9DX, ICD10CM."""

import re
from bisect import bisect

# first category of each chapter of ICD-9, and its name; V and E codes come after all numbers
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
    (1000, "Factors influencing health status (V01-V91)"),
    (1001, "External causes of injury and poisoning (E000-E999)"),
)
# Where each chapter of ICD-10-CM begins, and its number. Text order is right for O9A and QA0 too.
ICD10_CHAPTERS = (
    *(("A00", 1), ("C00", 2), ("D50", 3), ("E00", 4), ("F00", 5), ("G00", 6), ("H00", 7), ("H60", 8), ("I00", 9)),
    *(("J00", 10), ("K00", 11), ("L00", 12), ("M00", 13), ("N00", 14), ("O00", 15), ("P00", 16), ("Q00", 17)),
    *(("R00", 18), ("S00", 19), ("U00", 22), ("V00", 20), ("Z00", 21)),
)
ICD10_CATEGORY = re.compile(r"[A-Z][0-9A-Z][0-9A-Z]")


def plain_icd(code: str) -> str:
    """As MIMIC and claims write ICD codes: without the dot, in capitals."""
    return code.replace(".", "").upper()


def category_length(system: str, plain: str) -> int:
    """Three characters; E codes of ICD-9 have four, its procedures two. A dot comes after them."""
    return 2 if system == "ICD9PX" else 4 if system == "ICD9DX" and plain.startswith("E") else 3


def dotted_icd(system: str, code: str) -> str:
    """As FHIR and people write ICD codes."""
    if "." in code or not system.startswith("ICD") or system == "ICD10PCS":
        return code
    head = category_length(system, code)
    return f"{code[:head]}.{code[head:]}" if len(code) > head else code


def icd9_chapter(plain: str) -> int | None:
    """1 to 17 by number (0: category 000, which is in none), 18 for V and 19 for E codes; None if it is no code."""
    if plain[:1] in ("V", "E"):
        return 18 if plain[0] == "V" else 19
    return bisect(ICD9_CHAPTERS, int(plain[:3]), key=lambda row: row[0]) if plain[:3].isdecimal() else None


def icd10_chapter(plain: str) -> int | None:
    """1 to 22; None if it is no code."""
    if ICD10_CATEGORY.fullmatch(plain[:3]) is None:
        return None
    return [number for first, number in ICD10_CHAPTERS if first <= plain[:3]][-1]
