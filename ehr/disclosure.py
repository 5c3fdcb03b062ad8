"""No count of 1 to 10 real patients is printed anywhere, not even for those who hold the records: papers get around.

That protects a page, not a service that answers one question after another: whoever does not hold the records gets no
answer that is computed from them (docs/privacy.md).
"""

import numpy as np
from numpy.typing import NDArray

SMALLEST_SHOWN = 11


def shown(count: int, total: int | None = None) -> int | None:
    """The count if it may be shown, else None. With `total`, the patients who are *not* counted are protected too:
    290 of 295 tells that five are without."""
    if 0 < count < SMALLEST_SHOWN:
        return None
    if total is not None and 0 < total - count < SMALLEST_SHOWN:
        return None
    return count


def are_shown(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the counts may be shown, in the same shape."""
    return np.asarray((counts == 0) | (counts >= SMALLEST_SHOWN))


def shown_parts(counts: dict[str, int]) -> dict[str, int] | None:
    """Counts that add up to a known total: all of them, or none if any is small (the others would give it away)."""
    return counts if all(shown(count) is not None for count in counts.values()) else None


def largest_shown(values: NDArray[np.int64]) -> int:
    """The largest number that 11 patients reach, of one number for each: how far ten of them lie beyond that changes
    nothing. Of fewer patients the smallest."""
    return int(np.sort(values)[-min(SMALLEST_SHOWN, len(values))])


def large_bins(counts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(first, last) of consecutive bins, merged until none holds 1 to 10 patients; none at all if there are too few."""
    bins: list[tuple[int, int]] = []
    first, held = 0, 0
    for position, count in enumerate(counts.tolist()):
        held += count
        if held >= SMALLEST_SHOWN:
            bins.append((first, position))
            first, held = position + 1, 0
    if held and bins:
        bins[-1] = (bins[-1][0], len(counts) - 1)
    return bins
