"""Drawing from many distributions at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """Many distributions over as many outcomes, ready to be drawn from."""

    cdf: Floats  # row r holds the interval from r to r + 1, so that one search finds the outcome of any row
    outcomes: int

    @classmethod
    def of(cls, probabilities: Floats) -> "Draws":
        """The last axis are the outcomes; rows count through the others."""
        cdf = np.cumsum(probabilities.reshape(-1, probabilities.shape[-1]), axis=1)
        cdf /= cdf[:, -1:]
        return cls((np.arange(len(cdf))[:, None] + cdf).ravel(), cdf.shape[1])

    def draw(self, rows: Ints, rng: np.random.Generator) -> Ints:
        u = np.minimum(rows + rng.random(len(rows)), np.nextafter(rows + 1.0, 0))
        found: Ints = np.searchsorted(self.cdf, u, side="right") - rows * self.outcomes
        return found
