"""Patients over time: each patient's visits in order, and what is true of the patient at every visit.

Visits are records, so everything that is known about records (groups, rules, conditions) holds for a visit as well.
Memory grows with the codes that are there, never with patients x visits x vocabulary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ehr.errors import DataError
from ehr.records import Records, indptr_of

NEVER = np.iinfo(np.int64).max  # the number of the first visit with a code, where there is none


@dataclass(frozen=True)
class Histories:
    """Rows `offsets[i]:offsets[i + 1]` of `visits` are the visits of patient i, oldest first."""

    visits: Records  # one row for each visit; its codes are indices into the vocabulary
    offsets: NDArray[np.int64]  # (P + 1,)
    gaps: NDArray[np.int32]  # (V,) days since the patient's visit before; 0 at the first
    static: Records  # one row for each patient (sex, age band at the first visit); the same vocabulary

    def __post_init__(self) -> None:
        if self.offsets.ndim != 1 or len(self.offsets) < 1 or self.offsets[0] != 0 or np.any(np.diff(self.offsets) < 1):
            raise DataError("offsets must start at 0 and ascend: a patient has at least one visit")
        if self.offsets[-1] != len(self.visits) or len(self.gaps) != len(self.visits):
            raise DataError("offsets must end at the number of visits, and there must be one gap for each visit")
        if len(self.static) != len(self):
            raise DataError("there must be one static record for each patient")
        if self.static.n_codes != self.visits.n_codes:
            raise DataError("static codes and the codes of visits are of one vocabulary")
        if np.any(self.gaps < 0) or np.any(self.gaps[self.offsets[:-1]] != 0):
            raise DataError("a gap is a number of days, and 0 at a patient's first visit")

    @classmethod
    def concatenate(cls, parts: "Sequence[Histories]") -> "Histories":
        """The patients of all parts, in order."""
        return cls(
            Records.concatenate([part.visits for part in parts]),
            indptr_of(np.concatenate([part.visit_counts() for part in parts])),
            np.concatenate([part.gaps for part in parts]),
            Records.concatenate([part.static for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_codes(self) -> int:
        return self.visits.n_codes

    def visit_counts(self) -> NDArray[np.int64]:
        """How many visits each patient has, (P,)."""
        return np.diff(self.offsets)

    def patients(self) -> NDArray[np.int64]:
        """The patient that each visit belongs to, (V,)."""
        return np.repeat(np.arange(len(self)), self.visit_counts())

    def days(self) -> NDArray[np.int64]:
        """Days from the patient's first visit to each visit, (V,)."""
        total: NDArray[np.int64] = np.cumsum(self.gaps, dtype=np.int64)
        return total - np.repeat(total[self.offsets[:-1]], self.visit_counts())

    def take(self, patients: ArrayLike) -> "Histories":
        """The histories of `patients`, in that order."""
        patients = np.asarray(patients, dtype=np.int64)
        counts = self.visit_counts()[patients]
        offsets = indptr_of(counts)
        rows = np.repeat(self.offsets[patients], counts) + np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return Histories(self.visits.take(rows), offsets, self.gaps[rows], self.static.take(patients))

    def visits_with_static(self) -> Records:
        """Each visit with what is true of its patient: what rules and groups are about."""
        rows, codes = self.visits.rows(), self.visits.indices
        about = self.static.take(self.patients())
        return Records.from_pairs(
            np.concatenate([rows, about.rows()]), np.concatenate([codes, about.indices]), len(self.visits), self.n_codes
        )

    def ever(self) -> Records:
        """Each patient as one set: the static codes and those of all visits."""
        rows: list[NDArray[Any]] = [self.static.rows(), self.patients()[self.visits.rows()]]
        codes = [self.static.indices, self.visits.indices]
        return Records.from_pairs(np.concatenate(rows), np.concatenate(codes), len(self), self.n_codes)


def first_visits(histories: Histories, codes: Iterable[int]) -> NDArray[np.int64]:
    """The number (from 0) of each patient's first visit with one of the codes, (P,); NEVER where there is none."""
    rows = np.flatnonzero(histories.visits.having_any(codes))
    patients = histories.patients()[rows]
    found = np.full(len(histories), NEVER)
    np.minimum.at(found, patients, rows - histories.offsets[patients])
    return found
