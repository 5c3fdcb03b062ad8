"""Who the records' people are, for formats that have persons: what sex and age bands say is said by them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ehr.codes.edits import edits_of
from ehr.codes.systems import AGE, BANDS, OTHER_VISIT, SEX, SEXES, VISIT, band_start, visit_concept
from ehr.formats.write.protocol import Block, CohortSource, Ints

OLDEST = 124
BAND_YEARS, MIDDLE_OF_BAND = 10, 5


@dataclass(frozen=True)
class Person:
    """The sex, the age band and the kind of visit of a record; None unless there is exactly one of a kind. `age` is a
    year of the band at which people have the record's codes: a newborn is no child of five."""

    sex: str | None
    band: str | None
    age: int | None = None
    visit: int | None = None  # concept

    @property
    def is_newborn(self) -> bool:
        return self.age == 0


@dataclass(frozen=True)
class People:
    """The people of a cohort."""

    cohort: CohortSource

    @cached_property
    def _codes(self) -> dict[str, NDArray[np.bool_]]:
        """system -> which codes a person or a visit says. `AGE:elderly` is a code like any other."""
        visits = [code for code in self.cohort.vocabulary if code == OTHER_VISIT or visit_concept(code) is not None]
        return {
            system: np.array([code in known for code in self.cohort.vocabulary], dtype=bool)
            for system, known in ((SEX, SEXES), (AGE, BANDS), (VISIT, visits))
        }

    @cached_property
    def _ages(self) -> tuple[Ints, Ints]:
        """The first and the last year at which people have each code."""
        edits = [[edit.ages for edit in edits_of(code) if edit.ages is not None] for code in self.cohort.vocabulary]
        first = [max((ages[0] for ages in some), default=0) for some in edits]
        last = [min((ages[1] for ages in some), default=OLDEST) for some in edits]
        return np.array(first, dtype=np.int64), np.array(last, dtype=np.int64)

    def all(self) -> Iterator[tuple[Block, Ints, list[Person]]]:
        """Blocks with the numbers of their people and who they are, by their first records."""
        for block in self.cohort.blocks():
            firsts, people = block.firsts(), self.of(block)
            yield block, block.people()[firsts], [people[at] for at in firsts.tolist()]

    def of(self, block: Block) -> list[Person]:
        sexes, bands, visits = (self._only(block, system) for system in (SEX, AGE, VISIT))
        ages = self._ages_of(block, bands)
        concepts = [None if code is None else visit_concept(code) for code in visits]
        return [Person(*person) for person in zip(sexes, bands, ages, concepts, strict=True)]

    def _ages_of(self, block: Block, bands: list[str | None]) -> list[int | None]:
        """The year of each band that is nearest to its middle and fits all codes; the middle if none does."""
        row, code = block.rows()
        first, last = np.zeros(len(bands), dtype=np.int64), np.full(len(bands), OLDEST)
        np.maximum.at(first, row, self._ages[0][code])
        np.minimum.at(last, row, self._ages[1][code])
        return [
            None if band is None else _age(band_start(band), low, high)
            for band, low, high in zip(bands, first.tolist(), last.tolist(), strict=True)
        ]

    def said_by_person(self, block: Block) -> NDArray[np.bool_]:
        """Which rows of a block need no row of their own: the person says it."""
        return self._alone(block, SEX) | self._alone(block, AGE) | self._alone(block, VISIT)

    def _alone(self, block: Block, system: str) -> NDArray[np.bool_]:
        """Which rows have their record's only code of a system."""
        row, code = block.rows()
        of_system = self._codes[system][code]
        alone: NDArray[np.bool_] = of_system & (np.bincount(row[of_system], minlength=len(block.records))[row] == 1)
        return alone

    def _only(self, block: Block, system: str) -> list[str | None]:
        row, code = block.rows()
        alone = self._alone(block, system)
        found: list[str | None] = [None] * len(block.records)
        for at, which in zip(row[alone].tolist(), code[alone].tolist(), strict=True):
            found[at] = self.cohort.vocabulary[which]
        return found


def _age(start: int, first: int, last: int) -> int:
    low, high = max(start, first), min(start + BAND_YEARS - 1, last)
    middle = start + MIDDLE_OF_BAND
    return min(max(middle, low), high) if low <= high else middle
