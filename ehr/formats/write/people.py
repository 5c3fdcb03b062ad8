"""Who the records' people are, for formats that have persons: what sex and age bands say is said by them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ehr.codes.systems import AGE, BANDS, SEX, SEXES
from ehr.formats.write.protocol import Block, CohortSource, Ints


@dataclass(frozen=True)
class Person:
    """The sex and the age band of a record; None unless there is exactly one of a kind."""

    sex: str | None
    band: str | None


@dataclass(frozen=True)
class People:
    """The people of a cohort."""

    cohort: CohortSource

    @cached_property
    def _codes(self) -> dict[str, NDArray[np.bool_]]:
        """system -> which codes a person says. `AGE:elderly` is a code like any other."""
        return {
            system: np.array([code in known for code in self.cohort.vocabulary], dtype=bool)
            for system, known in ((SEX, SEXES), (AGE, BANDS))
        }

    def all(self) -> Iterator[tuple[Ints, list[Person]]]:
        """(record numbers, who they are), a block at a time."""
        for block in self.cohort.blocks():
            yield block.numbers(), self.of(block)

    def of(self, block: Block) -> list[Person]:
        return [Person(sex, band) for sex, band in zip(self._only(block, SEX), self._only(block, AGE), strict=True)]

    def said_by_person(self, block: Block) -> NDArray[np.bool_]:
        """Which rows of a block need no row of their own: the person says it."""
        return self._alone(block, SEX) | self._alone(block, AGE)

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
