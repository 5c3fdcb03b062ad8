"""Records that are read in pieces, because there are more of them than memory should hold.

An epoch is a shuffle of chunks, and of the records of as many chunks as a pool has: docs/decisions/0103 says why
that is enough.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ehr.groups import Groups
from ehr.records import Records, indptr_of

CHUNK = 4096  # records that lie side by side and are read at once
POOL = 256  # chunks that are in memory at once


@dataclass(frozen=True)
class RecordStream:
    """Some of the records of a file, of which only their sizes are in memory."""

    indptr: NDArray[np.int64]  # (R + 1,) of all records of the file
    read: Callable[[int, int], NDArray[np.int32]]  # (start, stop) -> those of its indices
    n_codes: int
    rows: NDArray[np.int32]  # which of the records, ascending

    def __len__(self) -> int:
        return len(self.rows)

    def sizes(self) -> NDArray[np.int64]:
        """How many codes each record has, (R,)."""
        return np.diff(self.indptr)[self.rows]

    def where(self, keep: NDArray[np.bool_]) -> "RecordStream":
        """Those of the records for which `keep` (R,) is true."""
        return RecordStream(self.indptr, self.read, self.n_codes, self.rows[keep])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The place in `rows` at which each chunk of the file begins, and where the last ends, (chunks + 1,)."""
        n = len(self.indptr) - 1
        return np.searchsorted(self.rows, np.arange(0, -(-n // CHUNK) + 1) * CHUNK).astype(np.int64)

    @property
    def n_chunks(self) -> int:
        return len(self.starts) - 1

    def chunk(self, number: int) -> Records:
        """The records that lie in one chunk of the file."""
        rows = self.rows[self.starts[number] : self.starts[number + 1]]
        if len(rows) == 0:
            return Records(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32), self.n_codes)
        first, last = int(rows[0]), int(rows[-1]) + 1
        bounds = self.indptr[first : last + 1]
        return Records(bounds - bounds[0], self.read(int(bounds[0]), int(bounds[-1])), self.n_codes).take(rows - first)

    def pools(self) -> Iterator[Records]:
        """All records in their order, as many at a time as are in memory at once."""
        for start in range(0, self.n_chunks, POOL):
            yield Records.concatenate([self.chunk(n) for n in range(start, min(start + POOL, self.n_chunks))])

    def prevalence(self) -> NDArray[np.float64]:
        """The share of records that have each code, (N,)."""
        counts = np.zeros(self.n_codes, dtype=np.int64)
        for pool in self.pools():
            counts += pool.counts()
        return counts / max(len(self), 1)

    def take(self, rows: ArrayLike) -> Records:
        """The records at `rows`, which ascend; for a few that lie together."""
        rows = np.asarray(rows, dtype=np.int64)
        parts = [Records(indptr_of(np.zeros(0)), np.zeros(0, dtype=np.int32), self.n_codes)]
        for number in np.unique(np.searchsorted(self.starts, rows, side="right") - 1):
            first, last = self.starts[number], self.starts[number + 1]
            parts.append(self.chunk(int(number)).take(rows[(rows >= first) & (rows < last)] - first))
        return Records.concatenate(parts)

    def batches(self, seed: int, epoch: int, size: int, first: int, last: int) -> Iterator[Records]:
        """Batches number `first` to `last` (not included) of an epoch, which depends on (seed, epoch) alone."""
        order = np.random.default_rng([seed, epoch]).permutation(self.n_chunks)
        passed, wanted, left = 0, first * size, None
        for number, start in enumerate(range(0, self.n_chunks, POOL)):
            some = order[start : start + POOL]
            n = int((self.starts[some + 1] - self.starts[some]).sum())
            passed += n
            if passed <= wanted:  # a run that is resumed has seen all of these
                continue
            shuffled = np.random.default_rng([seed, epoch, number]).permutation(n)
            pool = Records.concatenate([self.chunk(int(each)) for each in some])
            pool = pool.take(shuffled[max(wanted - (passed - n), 0) :])
            pool = pool if left is None else Records.concatenate([left, pool])
            for at in range(0, len(pool) - size + 1, size):
                if first == last:
                    return
                yield pool.take(np.arange(at, at + size))
                first += 1
            left = pool.take(np.arange(len(pool) - len(pool) % size, len(pool)))


def keeping(records: "Records | RecordStream", groups: Groups) -> "Records | RecordStream":
    """The records that break no group."""
    if isinstance(records, Records):
        return groups.keeping(records)
    if len(groups) == 0 or len(records) == 0:
        return records
    return records.where(np.concatenate([~groups.broken_by(pool).any(axis=1) for pool in records.pools()]))
