"""What the writers of clinical formats share: a cohort's rows by domain, and who the records' people are."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ehr.codes.systems import AGE, SEX, split_code
from model_store.blobs import BlobStore
from model_store.cohorts import RecordBlock, iter_blocks

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Person:
    """The sex and the age band of a record; None unless there is exactly one of a kind."""

    sex: str | None
    band: str | None


@dataclass(frozen=True)
class CohortRows:
    """Ids are the same in every format: a record's number, and for a row record * (codes in all) + code."""

    store: BlobStore
    manifest: dict[str, Any]

    @cached_property
    def vocabulary(self) -> list[str]:
        return list(self.manifest["vocabulary"])

    @cached_property
    def systems(self) -> list[str]:
        return [split_code(code)[0] for code in self.vocabulary]

    def blocks(self) -> Iterator[RecordBlock]:
        return iter_blocks(self.store, self.manifest)

    def people(self) -> Iterator[tuple[Ints, list[Person]]]:
        """(record numbers, who they are), a part at a time."""
        for block in self.blocks():
            yield np.arange(block.first_record, block.first_record + len(block)), self.people_of(block)

    def people_of(self, block: RecordBlock) -> list[Person]:
        sexes, bands = self._only(block, SEX), self._only(block, AGE)
        return [Person(sex, band) for sex, band in zip(sexes, bands, strict=True)]

    def told_by_person(self, block: RecordBlock) -> NDArray[np.bool_]:
        """Which rows of a block need no row of their own: the person says it."""
        row, code = rows_of(block)
        told = np.zeros(len(code), dtype=bool)
        for system in (SEX, AGE):
            is_one = self._is_of(system)[code]
            told |= is_one & (np.bincount(row[is_one], minlength=len(block))[row] == 1)
        return told

    def _is_of(self, system: str) -> NDArray[np.bool_]:
        return np.array([name == system for name in self.systems], dtype=bool)

    def _only(self, block: RecordBlock, system: str) -> list[str | None]:
        row, code = rows_of(block)
        is_one = self._is_of(system)[code]
        found: list[str | None] = [None] * len(block)
        counts = np.bincount(row[is_one], minlength=len(block))
        for at, which in zip(row[is_one].tolist(), code[is_one].tolist(), strict=True):
            if counts[at] == 1:
                found[at] = self.vocabulary[which]
        return found


def rows_of(block: RecordBlock) -> tuple[Ints, Ints]:
    """(record within the block, code) of every row."""
    return np.repeat(np.arange(len(block)), np.diff(block.indptr)), block.indices.astype(np.int64)
