"""Days between visits as buckets, so that a gap is one more variable of a visit, and as days again."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ehr.disclosure import SMALLEST_SHOWN, large_bins, largest_shown
from ehr.histories import Histories

FIRST = 0  # the bucket of a patient's first visit, which no visit is before
MOST_BUCKETS = 48
UNSEEN = 366  # fewer days than this, if too few patients come again to look at
LEAST = 1e-9  # stands for a share of nothing


@dataclass(frozen=True)
class GapBuckets:
    """Bucket k = 1, 2, ... holds the gaps of `edges[k - 1]` to `edges[k] - 1` days; bucket 0 is the first visit's."""

    edges: NDArray[np.int64]  # (K + 1,), ascending; a single 0 where no patient has a second visit
    shares: NDArray[np.float64]  # of each day from the first edge to the last: how common it is

    @classmethod
    def of(cls, histories: Histories) -> Self:
        """Equally common buckets of 11 patients or more; a number of days that is common by itself has its own. Where
        the ten patients with the shortest and with the longest gaps lie beyond the others is not looked at: no
        patient's gap can be read off the first edge or the last, however often the patient comes."""
        returns = np.delete(np.arange(len(histories.gaps)), histories.offsets[:-1])
        gaps, whose = histories.gaps[returns].astype(np.int64), histories.patients()[returns]
        starts = np.flatnonzero(np.diff(whose, prepend=-1))
        if len(starts) < SMALLEST_SHOWN:
            return cls.evenly(np.array([1, UNSEEN]) if len(starts) else np.array([0]))
        first = -largest_shown(-np.minimum.reduceat(gaps, starts))
        after = max(largest_shown(np.maximum.reduceat(gaps, starts)), first) + 1
        inside = (gaps >= first) & (gaps < after)
        gaps, whose = gaps[inside], whose[inside]
        buckets = min(MOST_BUCKETS, max(len(gaps) // SMALLEST_SHOWN, 1))
        places = (np.arange(buckets) * len(gaps)) // buckets
        edges = np.unique(np.concatenate([[first, after], np.sort(gaps)[places]]))
        held = large_bins(_patients(np.searchsorted(edges, gaps, side="right") - 1, whose, len(edges) - 1))
        if not held:
            return cls.evenly(np.array([1, UNSEEN]))
        edges = np.array([*(edges[begin] for begin, _ in held), after])
        return cls(edges, _without_few(gaps - first, whose, edges))

    @classmethod
    def evenly(cls, edges: NDArray[np.int64]) -> Self:
        """All days of a bucket are equally common."""
        return cls(edges, np.ones(edges[-1] - edges[0]))

    def __len__(self) -> int:
        """With that of first visits."""
        return len(self.edges)

    def bucket(self, gaps: NDArray[Any]) -> NDArray[np.int64]:
        """The bucket of each gap that is not a first visit's."""
        place: NDArray[np.int64] = np.searchsorted(self.edges, gaps, side="right")
        return place.clip(1, max(len(self.edges) - 1, 1))

    def days(self, buckets: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """A number of days from each bucket; 0 for first visits."""
        drawn = self.between(self.edges[buckets - 1], self.edges[buckets], rng)
        return np.where(buckets == FIRST, 0, drawn)

    def share(self, first: NDArray[np.int64], after: NDArray[np.int64]) -> NDArray[np.float64]:
        """How common gaps of `first` days or more and fewer than `after` are, as far as there are buckets."""
        sums = np.append(0.0, np.cumsum(self.shares))
        low, high = (np.clip(day - self.edges[0], 0, len(self.shares)) for day in (first, after))
        between: NDArray[np.float64] = sums[np.maximum(high, low)] - sums[low]
        return between

    def between(
        self, first: NDArray[np.int64], after: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """A number of days from each `first` on and before `after`, by how common days are; `first` if none is."""
        sums, point = np.cumsum(self.shares), rng.random(len(first))
        before = self.share(np.full_like(first, self.edges[0]), first)
        chosen = self.edges[0] + np.searchsorted(sums, before + point * self.share(first, after), side="right")
        drawn: NDArray[np.int64] = np.clip(chosen, first, np.maximum(after - 1, first))
        return drawn


def _patients(what: NDArray[np.int64], whose: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """How many patients have each of n things."""
    return np.bincount(np.unique(whose * n + what) % n, minlength=n)


def _without_few(day: NDArray[np.int64], whose: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """How common each day is, where days that few patients have share evenly in what they have together in their
    bucket. `day`: of each gap, from the first edge on."""
    n = int(edges[-1] - edges[0])
    days, few = np.bincount(day, minlength=n), _patients(day, whose, n) < SMALLEST_SHOWN
    starts = edges[:-1] - edges[0]
    together = np.add.reduceat(np.where(few, days, 0), starts) / np.maximum(np.add.reduceat(few, starts, dtype=int), 1)
    shares: NDArray[np.float64] = np.where(few, np.repeat(together, np.diff(edges)), days)
    return shares


@dataclass(frozen=True)
class Room:
    """Of each bucket of gaps, the days that B patients have room for."""

    gaps: GapBuckets
    first: NDArray[np.int64]  # (B, buckets)
    after: NDArray[np.int64]  # (B, buckets), not included
    share: NDArray[np.float64]  # (B, buckets) of the bucket's gaps

    @classmethod
    def between(cls, gaps: GapBuckets, low: NDArray[np.int64], high: NDArray[np.int64]) -> "Room":
        """Gaps of `low` to `high` days (B,). Where no bucket has such a gap, the nearest one stands for it."""
        edges = gaps.edges
        first = np.maximum(edges[:-1], low[:, None])
        after = np.minimum(edges[1:], high[:, None] + 1)
        share = gaps.share(first, after) / gaps.share(edges[:-1], edges[1:])
        nowhere = np.flatnonzero(share.sum(axis=1) == 0)
        nearest = np.where(low[nowhere] >= edges[-1], len(edges) - 2, gaps.bucket(high[nowhere]) - 1)
        first[nowhere, nearest] = np.where(low[nowhere] >= edges[-1], low[nowhere], high[nowhere])
        after[nowhere, nearest] = first[nowhere, nearest] + 1
        share[nowhere, nearest] = LEAST
        return cls(gaps, first, after, share)

    def days(self, bucket: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """A number of days from the room in each patient's bucket, (B,)."""
        rows = np.arange(len(bucket))
        return self.gaps.between(self.first[rows, bucket], self.after[rows, bucket], rng)
