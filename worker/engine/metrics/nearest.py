"""Nearest records by Hamming distance, which between 0/1 records is the squared L2 distance.

|x| + |y| - 2 x.y needs only the products, and a sparse times a small dense block gives those at a cost that follows the
codes that are there. In 16-bit integers this was 30 times as fast as XOR and popcount over packed bits in NumPy and 10
times as fast as a dense matrix product (4,000 x 25,000 records, 949 codes).
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records

QUERIES, BASE = 4096, 1024  # records at a time: a block of distances takes 8 MiB
FARTHEST = np.iinfo(np.int32).max  # where there is no record


def distance_blocks(
    queries: Records, base: Records, *, same: bool = False
) -> Iterator[tuple[slice, slice, NDArray[np.int32]]]:
    """(rows of queries, rows of base, their distances) for all pairs, a block at a time.

    `same`: queries and base are the same records, and none is its own neighbour.
    """
    kind: type = np.int16 if queries.n_codes < 2**14 else np.int32
    for columns in _slices(len(base), BASE):
        part = base.take(np.arange(columns.start, columns.stop))
        y = np.ascontiguousarray(part.to_dense(kind).T)  # (N, BASE)
        for rows in _slices(len(queries), QUERIES):
            x = queries.take(np.arange(rows.start, rows.stop))
            d = (-2 * x.to_csr(kind)) @ y  # (QUERIES, BASE)
            d += x.sizes().astype(kind)[:, None]
            d += part.sizes().astype(kind)
            if same:
                itself = np.arange(max(rows.start, columns.start), min(rows.stop, columns.stop))
                d[itself - rows.start, itself - columns.start] = np.iinfo(kind).max
            yield rows, columns, d


def two_nearest(queries: Records, base: Records) -> NDArray[np.int32]:
    """Distances of each query to its nearest and second nearest record of `base`, (Q, 2)."""
    best = np.full((len(queries), 2), FARTHEST, dtype=np.int32)
    for rows, _, d in distance_blocks(queries, base):
        smallest = np.partition(d, 1, axis=1)[:, :2] if d.shape[1] > 2 else d
        best[rows] = np.sort(np.concatenate([best[rows], smallest], axis=1), axis=1)[:, :2]
    return best


def nearest(queries: Records, base: Records, *, same: bool = False) -> NDArray[np.int32]:
    """Distance of each query to its nearest record of `base`, (Q,)."""
    best = np.full(len(queries), FARTHEST, dtype=np.int32)
    for rows, _, d in distance_blocks(queries, base, same=same):
        np.minimum(best[rows], d.min(axis=1), out=best[rows])
    return best


def _slices(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
