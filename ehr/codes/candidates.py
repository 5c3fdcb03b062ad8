"""What someone may have meant who asked for a code that a vocabulary does not have."""

from collections.abc import Callable, Iterator
from itertools import islice

from ehr.codes.icd import category_length
from ehr.codes.rollups import ROLLUPS
from ehr.codes.search import CodeSearch
from ehr.codes.spelling import SAME, WILDCARD, Spellings, is_icd, plain_code, plain_system
from ehr.codes.systems import DECILE, split_code
from ehr.codes.typos import WordList

SHORTEST_CODE = 3  # characters; what is shorter is close to anything
LONG_CODE = 6  # characters, of which two may be wrong
ROLLED_UP = {"ccs", "ccsr", "icd9chapter", "icd10chapter"}  # systems that roll-ups make of ICD codes


class Candidates:
    """Guesses, the surest first: the first of them that finds something in the vocabulary is given."""

    def __init__(self, spellings: Spellings, search: Callable[[], CodeSearch]) -> None:
        self.spellings, self._search = spellings, search
        self._words: dict[str, WordList] = {}

    def of(self, pattern: str, most: int) -> list[str]:
        """Codes or wildcards of the vocabulary, the closest first; none if nothing is close."""
        for guess in (self._meanings, self._in_other_systems, self._related, self._named):
            if found := list(islice(dict.fromkeys(guess(pattern)), most)):
                return found
        return []

    def _meanings(self, pattern: str) -> Iterator[str]:
        """What an ambiguous pattern may mean."""
        for codes in self.spellings.alternatives(pattern):
            yield self.spellings.written(pattern, codes)

    def _in_other_systems(self, pattern: str) -> Iterator[str]:
        if ":" in pattern and len(rest := split_code(pattern)[1]) >= SHORTEST_CODE:
            yield from self._meanings(rest)

    def _related(self, pattern: str) -> Iterator[str]:
        yield from self._above(pattern)
        yield from self._below(pattern)
        yield from self._misspelt(pattern)

    def _above(self, pattern: str) -> Iterator[str]:
        """What a finer ICD code became when the data was rolled up."""
        stem = _stem(pattern)
        for system in filter(is_icd, self.spellings.systems_of(pattern)):
            for end in range(len(stem) - 1, category_length(system.upper(), stem.upper()) - 1, -1):
                yield from (self.spellings.codes[i] for i in self.spellings.places.get((system, stem[:end]), ()))
        if ROLLED_UP & self.spellings.systems.keys():
            for system in _icd_systems(pattern):
                rolled = {rollup(system, stem.upper()) for rollup in ROLLUPS.values()}
                yield from (code for code in sorted(filter(None, rolled)) if code in self.spellings.positions)

    def _below(self, pattern: str) -> Iterator[str]:
        """The finer codes of an ICD code, or the deciles of a lab."""
        rest = plain_code(split_code(pattern)[1])
        if WILDCARD in pattern or not rest:
            return
        wider = f"{pattern.strip()}{WILDCARD}"
        for codes in self.spellings.alternatives(wider):
            system, first = self.spellings.parts[codes[0]]
            whole = is_icd(system) and len(_stem(pattern)) >= category_length(system.upper(), rest.upper())
            if whole or first.startswith(f"{rest}{DECILE.casefold()}"):
                yield self.spellings.written(wider, codes)

    def _misspelt(self, pattern: str) -> Iterator[str]:
        """Codes with a character or two wrong, those that begin alike first. A wildcard's beginning may be wrong."""
        stem, star = _stem(pattern), WILDCARD if pattern.rstrip().endswith(WILDCARD) else ""
        if len(stem) < SHORTEST_CODE or WILDCARD in stem:
            return
        found: list[tuple[int, int, str]] = []
        for system in self.spellings.systems_of(pattern):
            words = self._beginnings(system, len(stem)) if star else self._codes(system)
            for edits, i in words.close(stem, 1 if len(stem) < LONG_CODE else 2):
                word = words.words[i]
                alike = next((at for at, (a, b) in enumerate(zip(word, stem, strict=False)) if a != b), len(stem))
                codes = self.spellings.alternatives(f"{system}:{word}{star}")
                found += [(edits, -alike, self.spellings.written(f"{word}{star}", each)) for each in codes]
        yield from (text for _, _, text in sorted(found))

    def _named(self, pattern: str) -> Iterator[str]:
        """Codes that are called so."""
        rest = split_code(pattern)[1].replace(WILDCARD, " ")
        if any(len(word) > SHORTEST_CODE and word.isalpha() for word in rest.split()):
            yield from (self.spellings.codes[i] for i in self._search().search(rest))

    def _codes(self, system: str) -> WordList:
        if system not in self._words:
            self._words[system] = WordList([self.spellings.parts[i][1] for i in self.spellings.systems.get(system, ())])
        return self._words[system]

    def _beginnings(self, system: str, length: int) -> WordList:
        codes = (self.spellings.parts[i][1] for i in self.spellings.systems.get(system, ()))
        return WordList(list(dict.fromkeys(code[:length] for code in codes)))


def _stem(pattern: str) -> str:
    """The code of a pattern without system, dots and the star at its end."""
    return plain_code(split_code(pattern)[1]).removesuffix(WILDCARD).replace(".", "")


def _icd_systems(pattern: str) -> list[str]:
    """The diagnoses that a pattern may speak of, as roll-ups name them."""
    named = plain_system(split_code(pattern)[0])
    kinds = {"icd10cm": "ICD10CM", "icd9dx": "ICD9DX"}
    return [name for kind, name in kinds.items() if named == "" or SAME.get(named) == kind]
