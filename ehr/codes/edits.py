"""Codes that belong to one sex or to some ages: a small table after the public edits of the Medicare Code Editor.

Only what is certain from the code alone is here, by categories of ICD. Whether a rule is used is for the data to say:
registries write some codes otherwise, and people's records do not always carry the sex they had at birth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ehr.codes.icd import plain_icd
from ehr.codes.systems import AGE, SEX, split_code


@dataclass(frozen=True)
class Edit:
    """Codes of a system from `first` to `last`, cut to the length of either, and the people who have them."""

    system: str
    first: str
    last: str
    why: str
    sex: str | None = None
    ages: tuple[int, int] | None = None  # whole years, both included

    def covers(self, system: str, plain: str) -> bool:
        """A code cut shorter than the edit is not covered: it may stand for others too."""
        length = len(self.first)
        return system == self.system and len(plain) >= length and self.first <= plain[:length] <= self.last


def _women(system: str, why: str, *ranges: str, ages: tuple[int, int] | None = None) -> tuple[Edit, ...]:
    return tuple(Edit(system, *_ends(each), why, sex="F", ages=ages) for each in ranges)


def _men(system: str, why: str, *ranges: str) -> tuple[Edit, ...]:
    return tuple(Edit(system, *_ends(each), why, sex="M") for each in ranges)


def _aged(system: str, why: str, ages: tuple[int, int], *ranges: str) -> tuple[Edit, ...]:
    return tuple(Edit(system, *_ends(each), why, ages=ages) for each in ranges)


def _ends(text: str) -> tuple[str, str]:
    first, _, last = text.partition("-")
    return first, last or first


CHILDBIRTH = "pregnancy and childbirth are coded for women of 9 to 64 years"
FEMALE = "this concerns female organs"
MALE = "this concerns male organs"
NEWBORN = "this is coded for newborns"
ADULT = "this is coded for adults"
CHILDBEARING = (9, 64)

EDITS: tuple[Edit, ...] = (
    *_women("ICD10CM", CHILDBIRTH, "O00-O9A", "Z33-Z34", "Z36-Z37", "Z3A", ages=CHILDBEARING),
    *_women("ICD10CM", FEMALE, "C51-C58", "D06", "D25-D28", "D39", "E28", "N70-N77", "N80-N98", "Q50-Q52", "R87"),
    *_women("ICD10CM", FEMALE, "A34", "B373", "C796", "D070-D073", "N992", "Z124"),
    *_men("ICD10CM", MALE, "C60-C63", "D29", "D40", "E29", "N40-N53", "Q53-Q55"),
    *_men("ICD10CM", MALE, "B260", "D074-D076", "R972", "Z125"),
    *_aged("ICD10CM", NEWBORN, (0, 0), "Z38", "Z0011"),
    *_aged("ICD10CM", ADULT, (15, 124), "N40", "N95", "F03", "G30", "H25", "I70"),
    *_women("ICD10PCS", CHILDBIRTH, "1", ages=CHILDBEARING),
    *_women("ICD10PCS", FEMALE, "0U"),
    *_men("ICD10PCS", MALE, "0V"),
    *_women("ICD9DX", CHILDBIRTH, "630-679", "V22-V24", "V27-V28", ages=CHILDBEARING),
    *_women("ICD9DX", FEMALE, "179-184", "218-221", "256", "614-629", "2331-2333", "2360-2363", "7520-7524", "7950"),
    *_men("ICD9DX", MALE, "185-187", "222", "257", "600-608", "2334-2336", "2364-2366", "7525-7526"),
    *_aged("ICD9DX", NEWBORN, (0, 0), "V30-V39"),
    *_aged("ICD9DX", ADULT, (15, 124), "290", "366", "440", "600", "627"),
    *_women("ICD9PX", FEMALE, "65-71"),
    *_women("ICD9PX", CHILDBIRTH, "72-75", ages=CHILDBEARING),
    *_men("ICD9PX", MALE, "60-64"),
)


def edits_of(code: str) -> list[Edit]:
    """The edits that concern a code `SYSTEM:CODE`."""
    system, rest = split_code(code)
    plain = plain_icd(rest)
    return [edit for edit in EDITS if edit.covers(system, plain)]


def forbidden_pairs(codes: Sequence[str]) -> Iterator[tuple[int, int]]:
    """(code, sex or age band) that the edits rule out, in indices; an age band is ruled out if all its years are."""
    people = [(number, code) for number, code in enumerate(codes) if split_code(code)[0] in (SEX, AGE)]
    for number, code in enumerate(codes):
        for edit in edits_of(code):
            yield from ((number, other) for other, name in people if _rules_out(edit, name))


def reason_of(codes: Sequence[str] | None, first: int, second: int) -> str:
    """Why two codes exclude each other, as far as the edits know."""
    for code, other in ((first, second), (second, first)) if codes is not None else ():
        assert codes is not None
        for edit in edits_of(codes[code]):
            if _rules_out(edit, codes[other]):
                return edit.why
    return "no record of the data has both"


def _rules_out(edit: Edit, member: str) -> bool:
    system, value = split_code(member)
    if system == SEX:
        return edit.sex is not None and value in ("F", "M") and value != edit.sex
    band = _years(value) if system == AGE else None
    return band is not None and edit.ages is not None and (band[1] < edit.ages[0] or band[0] > edit.ages[1])


def _years(band: str) -> tuple[int, int] | None:
    """The first and last year of `60-69`, `90+` or `0`; None if it is none of these."""
    first, dash, last = band.rstrip("+").partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        return None
    return int(first), 200 if band.endswith("+") else int(last or first)
