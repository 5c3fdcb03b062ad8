"""Days between visits as buckets, so that a gap is one more variable of a visit, and as days again."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

FIRST = 0  # the bucket of a patient's first visit, which no visit is before
MOST_BUCKETS = 48
FEWEST_GAPS = 11  # that a bucket is made of
LEAST = 1e-9  # stands for a share of nothing


@dataclass(frozen=True)
class GapBuckets:
    """Bucket k = 1, 2, ... holds the gaps of `edges[k - 1]` to `edges[k] - 1` days; bucket 0 is the first visit's."""

    edges: NDArray[np.int64]  # (K + 1,), ascending; a single 0 where no patient has a second visit

    @classmethod
    def of(cls, gaps: NDArray[np.int32]) -> Self:
        """Equally common buckets; a number of days that is common by itself has its own. The few longest gaps are
        cut, so that no patient's gap can be read off the last edge."""
        ordered = np.sort(gaps.astype(np.int64))
        if len(ordered) < FEWEST_GAPS:
            return cls(np.array([0, ordered[-1] + 1]) if len(ordered) else np.array([0]))
        buckets = min(MOST_BUCKETS, len(ordered) // FEWEST_GAPS)
        places = (np.arange(buckets) * len(ordered)) // buckets
        edges = np.unique(np.append(ordered[places], ordered[-FEWEST_GAPS] + 1))
        return cls(edges)

    def __len__(self) -> int:
        """With that of first visits."""
        return len(self.edges)

    def bucket(self, gaps: NDArray[np.int32]) -> NDArray[np.int64]:
        """The bucket of each gap that is not a first visit's."""
        place: NDArray[np.int64] = np.searchsorted(self.edges, gaps, side="right")
        return place.clip(1, max(len(self.edges) - 1, 1))

    def days(self, buckets: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """A number of days from each bucket; 0 for first visits."""
        low, high = self.edges[buckets - 1], self.edges[buckets]
        drawn: NDArray[np.int64] = low + np.floor(rng.random(len(buckets)) * (high - low)).astype(np.int64)
        return np.where(buckets == FIRST, 0, drawn)


@dataclass(frozen=True)
class Room:
    """Of each bucket of gaps, the days that B patients have room for."""

    first: NDArray[np.int64]  # (B, buckets)
    after: NDArray[np.int64]  # (B, buckets), not included
    share: NDArray[np.float64]  # (B, buckets) of the bucket's days

    @classmethod
    def between(cls, edges: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64]) -> "Room":
        """Gaps of `low` to `high` days (B,). Where no bucket has such a gap, the nearest one stands for it."""
        first = np.maximum(edges[:-1], low[:, None])
        after = np.minimum(edges[1:], high[:, None] + 1)
        share = (after - first).clip(0) / np.diff(edges)
        nowhere = np.flatnonzero(share.sum(axis=1) == 0)
        nearest = np.where(low[nowhere] >= edges[-1], len(edges) - 2, 0)
        first[nowhere, nearest] = np.where(low[nowhere] >= edges[-1], low[nowhere], high[nowhere])
        after[nowhere, nearest] = first[nowhere, nearest] + 1
        share[nowhere, nearest] = LEAST
        return cls(first, after, share)

    def days(self, bucket: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """A number of days from the room in each patient's bucket, (B,)."""
        rows = np.arange(len(bucket))
        first, width = self.first[rows, bucket], (self.after - self.first)[rows, bucket].clip(1)
        drawn: NDArray[np.int64] = first + np.floor(rng.random(len(bucket)) * width).astype(np.int64)
        return drawn
