"""Patient records as sets of codes, stored as CSR without values.

A record is the sorted set of the codes it contains, each an index into the vocabulary. Memory grows with the codes
that are there, never with records x vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ehr.errors import DataError

AT_A_TIME = 1 << 20  # records

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def indptr_of(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """Where each record begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


@dataclass(frozen=True)
class Records:
    """`indices[indptr[i]:indptr[i + 1]]` are the codes of record i, ascending and distinct."""

    indptr: NDArray[np.int64]  # (R + 1,)
    indices: NDArray[np.int32]  # (codes in all records,)
    n_codes: int

    def __post_init__(self) -> None:
        if self.indptr.ndim != 1 or len(self.indptr) < 1 or self.indptr[0] != 0:
            raise DataError("indptr must be one-dimensional and start at 0")
        if self.indptr[-1] != len(self.indices) or np.any(np.diff(self.indptr) < 0):
            raise DataError("indptr must ascend to the number of indices")
        if len(self.indices) and (self.indices.min() < 0 or self.indices.max() >= self.n_codes):
            raise DataError(
                f"code {int(self.indices.max())} is outside the vocabulary: codes run from 0 to {self.n_codes - 1}"
            )

    @classmethod
    def from_pairs(cls, rows: ArrayLike, codes: ArrayLike, n_records: int, n_codes: int) -> "Records":
        """Records from (row, code) pairs in any order; a pair given twice counts once."""
        rows, codes = np.asarray(rows, dtype=np.int64), np.asarray(codes, dtype=np.int64)
        if len(rows) != len(codes):
            raise DataError(f"{len(rows)} rows but {len(codes)} codes: there must be one code for each row")
        if len(rows) and (rows.min() < 0 or rows.max() >= n_records):
            raise DataError(f"a row lies outside 0 to {n_records - 1}")
        if len(codes) and (codes.min() < 0 or codes.max() >= n_codes):
            wrong = codes[(codes < 0) | (codes >= n_codes)][0]
            raise DataError(f"code {int(wrong)} is outside the vocabulary: codes run from 0 to {n_codes - 1}")
        flat = np.sort(rows * n_codes + codes)  # np.unique hashes first, which takes ten times as long
        flat = flat[np.flatnonzero(np.diff(flat, prepend=-1))]
        sizes = np.bincount(flat // n_codes, minlength=n_records)
        return cls(indptr_of(sizes), (flat % n_codes).astype(np.int32), n_codes)

    @classmethod
    def from_sets(cls, sets: Iterable[Iterable[int]], n_codes: int) -> "Records":
        """Records from Python sets or lists of code indices; for small data and tests."""
        listed = [list(codes) for codes in sets]
        rows = [row for row, codes in enumerate(listed) for _ in codes]
        return cls.from_pairs(rows, [code for codes in listed for code in codes], len(listed), n_codes)

    @classmethod
    def from_dense(cls, x: ArrayLike) -> "Records":
        """Records from a (batch of a) 0/1 array of shape (R, N)."""
        x = np.asarray(x)
        # row-major: already sorted; in one dimension it is found several times as fast
        rows, codes = np.divmod(np.flatnonzero(x != 0), max(x.shape[1], 1))
        return cls(indptr_of(np.bincount(rows, minlength=len(x))), codes.astype(np.int32), x.shape[1])

    @classmethod
    def concatenate(cls, parts: "list[Records]") -> "Records":
        """The records of all parts, in order."""
        if not parts:
            raise DataError("there is nothing to concatenate")
        sizes = np.concatenate([part.sizes() for part in parts])
        return cls(indptr_of(sizes), np.concatenate([part.indices for part in parts]), parts[0].n_codes)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def sizes(self) -> NDArray[np.int64]:
        """How many codes each record has, (R,)."""
        return np.diff(self.indptr)

    def rows(self) -> NDArray[np.int64]:
        """The record that each of `indices` belongs to."""
        return np.repeat(np.arange(len(self)), self.sizes())

    def counts(self) -> NDArray[np.int64]:
        """How many records have each code, (N,)."""
        counts = np.zeros(self.n_codes, dtype=np.int64)
        for start in range(0, len(self.indices), 16 * AT_A_TIME):  # bincount makes a copy in 64 bits
            counts += np.bincount(self.indices[start : start + 16 * AT_A_TIME], minlength=self.n_codes)
        return counts

    def prevalence(self) -> NDArray[np.float64]:
        """The share of records that have each code, (N,)."""
        return self.counts() / max(len(self), 1)

    def take(self, rows: ArrayLike) -> "Records":
        """The records at `rows`, in that order."""
        rows = np.asarray(rows, dtype=np.int64)
        sizes = self.indptr[rows + 1] - self.indptr[rows]
        indptr = indptr_of(sizes)
        indices = np.empty(indptr[-1], dtype=self.indices.dtype)
        # some at a time: for all of ten million records, the positions would take many times what the codes do
        for start in range(0, len(rows), AT_A_TIME):
            part = slice(start, start + AT_A_TIME)
            first, n = indptr[start], sizes[part]
            # position of each output entry = start of its record + offset within the record
            offsets = np.arange(n.sum()) - np.repeat(indptr[:-1][part] - first, n)
            indices[first : first + len(offsets)] = self.indices[np.repeat(self.indptr[rows[part]], n) + offsets]
        return Records(indptr, indices, self.n_codes)

    def having(self, code: int) -> NDArray[np.int64]:
        """The rows of the records that contain `code`."""
        return np.searchsorted(self.indptr, np.flatnonzero(self.indices == code), side="right") - 1

    def having_any(self, codes: Iterable[int]) -> NDArray[np.bool_]:
        """Which records contain at least one of `codes`, (R,)."""
        return self.number_of(codes) > 0

    def number_of(self, codes: Iterable[int]) -> NDArray[np.int64]:
        """How many of `codes` each record contains, (R,)."""
        wanted = np.zeros(self.n_codes, dtype=bool)
        wanted[list(codes)] = True
        number = np.empty(len(self), dtype=np.int64)
        for start in range(0, len(self), AT_A_TIME):
            bounds = self.indptr[start : start + AT_A_TIME + 1]
            hits = indptr_of(wanted[self.indices[bounds[0] : bounds[-1]]])
            number[start : start + AT_A_TIME] = np.diff(hits[bounds - bounds[0]])
        return number

    def to_csr(self, dtype: type = np.float32) -> "csr_array":
        """A SciPy matrix of ones, (R, N), sharing the index arrays."""
        from scipy.sparse import csr_array  # only mathematics needs it: the API holds records without SciPy in memory

        return csr_array(
            (np.ones(len(self.indices), dtype=dtype), self.indices, self.indptr), shape=(len(self), self.n_codes)
        )

    def to_dense(self, dtype: type = np.float32) -> NDArray[np.float32]:
        """A 0/1 array, (R, N). For batches, never for a whole data set."""
        x: NDArray[np.float32] = np.zeros((len(self), self.n_codes), dtype=dtype)
        x[self.rows(), self.indices] = 1
        return x
