"""What a format must have and records do not say is drawn, from a cohort's seed and the numbers of its records: it is
the same in every download and every format, and nobody's."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# what is drawn, so that two things drawn for one record have nothing to do with each other
PEOPLE, VISITS, PERIODS, ROWS = range(4)


def generator(seed: int, what: int, first_record: int) -> np.random.Generator:
    """For the block of records that begins with this one; blocks are the same whatever a cohort's parts are."""
    return np.random.default_rng([seed, what, first_record])


def drawn(shares: Sequence[float], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """n positions, each as often as its share says."""
    ends = np.cumsum(shares)
    positions: NDArray[np.int64] = np.minimum(
        np.searchsorted(ends, rng.random(n) * ends[-1], side="right"), len(shares) - 1
    )
    return positions
