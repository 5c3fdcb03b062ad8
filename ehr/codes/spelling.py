"""Codes as people write them: `e11.65`, `icd10cm:e11`, ` ICD9:250.00`, `E11*`; and which code of a vocabulary is meant.

Uploads have blanks stripped, and dots and small letters of ICD codes removed. Whoever asks for a code need not know
that: both sides are compared without them, systems also by their other names, and a code without its system in all of
them.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain

from ehr.codes.meanings import KINDS
from ehr.codes.systems import SYSTEMS, split_code

WILDCARD = "*"
# other names of systems, as `plain_system` writes them -> one name for all of them
SAME: dict[str, str] = {
    **{re.sub(r"[\W_]", "", system.omop.casefold()): system.name.casefold() for system in SYSTEMS},
    **{name.casefold(): kind for name, kind in KINDS.items()},
}


def plain_system(name: str) -> str:
    """`icd10cm` of `ICD-10-CM`; a wildcard stays."""
    return re.sub(r"[^\w*]|_", "", name.casefold())


def plain_code(text: str) -> str:
    return text.strip().casefold()


def is_icd(system: str) -> bool:
    """Whether dots do not count in this system."""
    return system.upper() in KINDS


def matcher(pattern: str) -> Callable[[str], object]:
    """What is true of texts that match a pattern as a whole, in which only the star is special."""
    if pattern.find(WILDCARD) == len(pattern) - 1:  # as nearly always
        beginning = pattern.removesuffix(WILDCARD)
        return lambda text: text.startswith(beginning)
    return re.compile(".*".join(map(re.escape, pattern.split(WILDCARD))), re.DOTALL).fullmatch


class Spellings:
    """The codes of a vocabulary without regard to how they are written."""

    def __init__(self, codes: Sequence[str]) -> None:
        self.codes = codes

    @cached_property
    def parts(self) -> list[tuple[str, str]]:
        """(system, code) of each code, as they are compared."""
        found = []
        for code in self.codes:
            system, rest = split_code(code)
            system, rest = plain_system(system), plain_code(rest)
            found.append((system, rest.replace(".", "") if is_icd(system) else rest))
        return found

    @cached_property
    def systems(self) -> dict[str, list[int]]:
        """The systems of the vocabulary, with their codes."""
        found: dict[str, list[int]] = defaultdict(list)
        for i, (system, _) in enumerate(self.parts):
            found[system].append(i)
        return dict(found)

    @cached_property
    def places(self) -> dict[tuple[str, str], list[int]]:
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, part in enumerate(self.parts):
            found[part].append(i)
        return dict(found)

    def systems_of(self, pattern: str) -> list[str]:
        """The systems of the vocabulary that a pattern may speak of: the one it names, those that are the same by
        another name, or all if it names none."""
        name, _ = split_code(pattern)
        if ":" not in pattern:
            return ["", *(system for system in self.systems if system)]
        wanted = plain_system(name)
        if WILDCARD in wanted:
            return list(filter(matcher(wanted), self.systems))
        if wanted in self.systems:
            return [wanted]
        return [system for system in self.systems if SAME.get(wanted, wanted) == SAME.get(system, system)]

    def alternatives(self, pattern: str) -> list[list[int]]:
        """What a pattern may mean, each a list of codes: none, one, or several if it is ambiguous. One code is one
        meaning; a wildcard means its codes of one system, and of several where it says so (`ICD*:25*`)."""
        name, rest = split_code(pattern)
        rest, systems = plain_code(rest), self.systems_of(pattern)
        if WILDCARD not in pattern:
            return [[i] for system in systems for i in self.places.get((system, _compared(system, rest)), ())]
        by_system = [self._matching(system, rest) for system in systems]
        matched = [codes for codes in by_system if codes]
        return [sorted(chain.from_iterable(matched))] if WILDCARD in name and matched else matched

    def _matching(self, system: str, rest: str) -> list[int]:
        fits, parts = matcher(_compared(system, rest)), self.parts
        return [i for i in self.systems.get(system, ()) if fits(parts[i][1])]

    def written(self, pattern: str, codes: Sequence[int]) -> str:
        """What names exactly these codes as the vocabulary writes them: the code, or the pattern with its system. The
        pattern itself if the vocabulary writes them in different ways."""
        if WILDCARD not in pattern:
            return self.codes[codes[0]]
        rest = split_code(pattern)[1].strip()
        systems = dict.fromkeys(split_code(self.codes[i])[0] for i in codes)
        for system in systems if len(systems) == 1 else ():
            prefix = f"{system}:" if system else ""
            for text in (rest, rest.upper(), rest.replace(".", "").upper(), rest.lower()):
                if self.exactly(f"{prefix}{text}") == list(codes):
                    return f"{prefix}{text}"
        return pattern

    def exactly(self, pattern: str) -> list[int]:
        """The codes that a pattern names letter by letter."""
        if WILDCARD not in pattern:
            return [self.positions[pattern]] if pattern in self.positions else []
        fits = matcher(pattern)
        return [i for i, code in enumerate(self.codes) if fits(code)]

    @cached_property
    def positions(self) -> dict[str, int]:
        return {code: position for position, code in enumerate(self.codes)}


def _compared(system: str, rest: str) -> str:
    return rest.replace(".", "") if is_icd(system) else rest
