"""No count of 1 to 10 real patients leaves the service, nor a total from which one could be solved for."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

SMALLEST_SHOWN = 11
ROUNDED_TO = 20  # twice the largest count that is hidden


class Discloses(StrEnum):
    """What a figure gives away about real patients, which decides how it is shown. Whoever defines a figure declares
    it: there is no default, so that nothing is shown because nobody has thought of it."""

    AGGREGATE = "aggregate"  # made of so many counts that none can be solved for
    SHARE_OF_PATIENTS = "share of patients"  # a share of real patients, or what can be turned into one
    FEW_UNKNOWNS = "few unknowns"  # a sum over codes: a share of patients where hardly any code is free
    SINGLE_PATIENT = "single patient"  # whether some patient has exactly a record, or how near the nearest one is


def shown(count: int, total: int | None = None) -> int | None:
    """The count if it may be shown, else None. With `total`, the patients who are *not* counted are protected too:
    290 of 295 tells that five are without."""
    if 0 < count < SMALLEST_SHOWN:
        return None
    if total is not None and 0 < total - count < SMALLEST_SHOWN:
        return None
    return count


def rounded(count: int, total: int) -> int | None:
    """A count that may stand beside others like it: None below 11, else rounded to two digits and to no less than
    ROUNDED_TO. Two exact counts of nested groups would give away their difference; these do not, and neither does one
    beside the total: all but 0 to 10 of the records are shown as all of them."""
    if count < SMALLEST_SHOWN:
        return None
    if total - count < SMALLEST_SHOWN:
        count = total
    step = max(ROUNDED_TO, int(10 ** (len(str(count)) - 2)))
    return max((count + step // 2) // step, 1) * step


def to_step(counts: NDArray[np.int64], step: int = ROUNDED_TO) -> NDArray[np.int64]:
    """Each count rounded to the nearest multiple of the step."""
    return (counts + step // 2) // step * step


def shown_parts(counts: dict[str, int]) -> dict[str, int] | None:
    """Counts that add up to a known total: all of them, or none if any is small (the others would give it away)."""
    return counts if all(shown(count) is not None for count in counts.values()) else None


def may_show(counts: Sequence[NDArray[np.int64]], totals: Sequence[int]) -> NDArray[np.bool_]:
    """Which counts of the first of several nested sets may be shown, (N,), when those of the others may be known too.

    `counts[i]` are of set i, `totals[i]` is its size, and every set lies in the next, such as a slice in the test split
    in the data set. The difference of two known counts is a count of the patients in between: it must not be small,
    nor may the number of patients there who are without.
    """
    nothing = np.zeros_like(counts[0])
    visible = np.ones(len(counts[0]), dtype=bool)
    for (inner, n_inner), (outer, n_outer) in combinations([(nothing, 0), *zip(counts, totals, strict=True)], 2):
        between, n_between = outer - inner, n_outer - n_inner
        for part in (between, n_between - between):
            visible &= (part == 0) | (part >= SMALLEST_SHOWN)
    return visible


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
