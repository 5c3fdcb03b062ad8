"""Pairs of codes, in indices of a vocabulary, and what hangs together by them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ehr.groups import Groups
from ehr.records import Records, indptr_of

Pairs = NDArray[np.int32]  # (P, 2)
NO_PAIRS: Pairs = np.zeros((0, 2), dtype=np.int32)


@dataclass(frozen=True)
class Links:
    """For each code other codes, as CSR."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]

    @classmethod
    def of(cls, pairs: Pairs, n_codes: int) -> "Links":
        """From first to second of each pair."""
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        counts = np.bincount(pairs[:, 0], minlength=n_codes)
        return cls(indptr_of(counts), pairs[order, 1].astype(np.int64))

    def __getitem__(self, code: int) -> list[int]:
        linked: list[int] = self.indices[self.indptr[code] : self.indptr[code + 1]].tolist()
        return linked


def expanded(records: Records, links: Links) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(row, code, linked code) for every code of every record and each of its links."""
    codes = records.indices.astype(np.int64)
    counts = links.indptr[codes + 1] - links.indptr[codes]
    ends = np.cumsum(counts)
    offsets = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    linked = links.indices[np.repeat(links.indptr[codes], counts) + offsets]
    return np.repeat(records.rows(), counts), np.repeat(codes, counts), linked


def as_pairs(pairs: ArrayLike | Iterable[tuple[int, int]]) -> Pairs:
    return np.asarray(pairs, dtype=np.int32).reshape(-1, 2)


def ordered(pairs: ArrayLike, groups: Groups) -> Pairs:
    """Each pair once, the smaller index first, without pairs of one group."""
    both = np.sort(as_pairs(pairs), axis=1)
    group_of = groups.group_of[both]
    same = (group_of[:, 0] == group_of[:, 1]) & (group_of[:, 0] >= 0)
    each_once: Pairs = np.unique(both[~same & (both[:, 0] != both[:, 1])], axis=0)
    return each_once


def listed(pairs: Pairs) -> list[list[int]]:
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    firsts, starts = np.unique(pairs[order, 0], return_index=True)
    parts = np.split(pairs[order, 1], starts[1:]) if len(firsts) else []
    return [[int(first), *part.tolist()] for first, part in zip(firsts, parts, strict=True)]


def unlisted(rows: Iterable[Sequence[int]]) -> Pairs:
    return as_pairs([(row[0], other) for row in rows for other in row[1:]])
