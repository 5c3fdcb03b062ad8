"""Days between visits as buckets, so that a gap is one more variable of a visit, and as days again."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

FIRST = 0  # the bucket of a patient's first visit, which no visit is before
MOST_BUCKETS = 48
FEWEST_GAPS = 11  # that a bucket is made of


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
