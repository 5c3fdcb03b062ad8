"""From training patients' values of a lab to what may leave of them: cut points, and a curve within each tenth.

All values of a patient together weigh one, and every cell between two knots weighs at least eleven: so it holds eleven
patients or more, however often some of them were measured. How far the outermost values reach is not looked at: where
the ten lowest and the ten highest patients lie beyond the others changes nothing.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ehr.disclosure import SMALLEST_SHOWN
from ehr.labs import PARTS, LabCurve, LabUnit, first_number
from worker.ingestion.numbering import Ints

FEWEST_PATIENTS = PARTS * SMALLEST_SHOWN
MOST_CELLS = 10  # of a part
SIGNIFICANT = 4
MOST_DECIMALS = 30
# Values are kept, compared with cut points and (by MEDS) written as float32, which tells seven digits apart.
DIGITS = 7
Values = NDArray[np.float32]
Floats = NDArray[np.float64]


def learned(values: Values, patients: Ints, unit: LabUnit | None = None) -> LabCurve:
    """The curve of a lab. `values` (V,) and whose they are, of training records in one unit."""
    order = np.argsort(values, kind="stable")
    values, patients = values[order], patients[order]
    _, whose, times = np.unique(patients, return_inverse=True, return_counts=True)
    weights = 1.0 / times[whose]
    cuts = rounded(quantiles(values, weights, np.arange(1, PARTS) / PARTS))
    decimals = _decimals(values, patients, float(np.abs(cuts).max()))
    ends = [0, *np.searchsorted(values, cuts.astype(np.float32), side="left"), len(values)]
    parts = [
        _part(values[a:b], weights[a:b], _Bounds(part, cuts, 10.0**decimals))
        for part, (a, b) in enumerate(pairwise(ends))
    ]
    return LabCurve(
        tuple(cuts.tolist()), tuple(knots for knots, _ in parts), tuple(shares for _, shares in parts), decimals, unit
    )


def decile_of(values: Values, cuts: tuple[float, ...]) -> Ints:
    """0 to 9. A value at a cut point lies above it; both are float32, so that 5.1 is not below 5.1."""
    return np.searchsorted(np.array(cuts, dtype=np.float32), values, side="right")


def quantiles(values: Values | Floats, weights: Floats, shares: Floats) -> Floats:
    """Of sorted values with weights, interpolated; with equal weights, NumPy's default."""
    middle = np.cumsum(weights) - weights / 2
    span = middle[-1] - middle[0]
    at: Floats = np.interp(shares, (middle - middle[0]) / span if span > 0 else middle, values.astype(np.float64))
    return at


def rounded(values: Floats) -> Floats:
    """To few digits: a knot need not be anybody's exact value."""
    return np.array([float(f"{value:.{SIGNIFICANT}g}") for value in values.tolist()], dtype=np.float64)


def _decimals(values: Values, patients: Ints, largest: float) -> int:
    """As many as eleven patients' values need, and no more than float32 tells apart."""
    whole_digits = int(np.floor(np.log10(largest))) + 1 if largest > 0 else 0
    most = min(MOST_DECIMALS, max(DIGITS - whole_digits, 0))
    for decimals in range(max(-whole_digits, 0), most):
        scale = 10.0**decimals
        needs_more = (np.rint(values.astype(np.float64) * scale) / scale).astype(np.float32) != values
        holders = patients[needs_more]
        # nearly always the first thousand tell, and sorting all of them takes long
        if all(len(np.unique(some)) < SMALLEST_SHOWN for some in (holders[:1000], holders)):
            return decimals
    return most


class _Bounds:
    """Where a part begins and ends: at cut points, moved up to the next number with the lab's decimals, since a number
    stands for all values from itself up to the next. None where no cut point is."""

    def __init__(self, part: int, cuts: Floats, scale: float) -> None:
        self.scale = scale
        self.step = max(1 / scale, float(np.spacing(np.float32(np.abs(cuts).max()))))  # from a number to the next
        self.low = None if part == 0 else self.up(float(cuts[part - 1]))
        self.high = None if part == PARTS - 1 else self.up(float(cuts[part]))

    def up(self, value: float) -> float:
        return first_number(value, self.scale)

    def without_looking(self) -> tuple[float, float]:
        """What a part of too few patients is taken for: an inner one lies between its cut points, and an outer one has
        the number next to its own."""
        low = self.up((self.high or 0.0) - self.step) if self.low is None else self.low
        return low, self.up(low + self.step) if self.high is None else self.high

    def inside(self, value: float) -> bool:
        return (self.low is None or value > self.low) and (self.high is None or value < self.high)

    def shares(self, weight: float) -> Floats:
        """Which shares of the part's weight lie below its inner knots: equal cells; in the outermost parts each cell
        towards the outside holds half of what is left, as long as that has eleven patients on either side of its
        median."""
        if self.low is not None and self.high is not None:
            n = min(MOST_CELLS, int(weight // SMALLEST_SHOWN))
            return np.arange(1, n) / max(n, 1)
        halvings = np.arange(1, MOST_CELLS)
        left: Floats = 0.5 ** halvings[weight * 0.5**halvings >= 2 * SMALLEST_SHOWN].astype(np.float64)
        return 1 - left if self.low is not None else left[::-1]


def _part(values: Values, weights: Floats, bounds: _Bounds) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(knots, shares of the cells) of one part; its values are sorted."""
    weight = float(weights.sum())
    if weight < SMALLEST_SHOWN:
        ends = bounds.without_looking()
        return (ends, (1.0,)) if ends[0] < ends[1] else ((), ())
    wanted = rounded(quantiles(values, weights, bounds.shares(weight))).tolist()
    if bounds.low is not None:
        wanted.append(bounds.low)
    # a number that many have is a cell of its own, which ends at the next number
    wanted = sorted({bounds.up(knot + more) for knot in wanted for more in (0.0, bounds.step)})
    knots = np.array([knot for knot in wanted if bounds.inside(knot)])
    knots, held = _merged(knots, values, weights)
    borders = np.searchsorted(values, knots.astype(np.float32), side="left")
    low, high = bounds.low, bounds.high
    if low is None:
        end = borders[0] if len(borders) else len(values)
        low = _outer(values[:end], weights[:end], float(knots[0]) if len(knots) else high, bounds, below=True)
    if high is None:
        start = borders[-1] if len(borders) else 0
        high = _outer(values[start:], weights[start:], float(knots[-1]) if len(knots) else low, bounds, below=False)
    if not low < high:
        return (), ()
    return (low, *knots.tolist(), high), tuple(np.round(held / weight, 3).tolist())


def _merged(knots: Floats, values: Values, weights: Floats) -> tuple[Floats, Floats]:
    """(knots, weights of the cells between them), without knots that would leave a cell of fewer than eleven."""
    below = np.concatenate([[0.0], np.cumsum(weights)])
    kept: list[float] = []
    cells: list[float] = []
    for knot in knots.tolist():
        until = float(below[np.searchsorted(values, np.float32(knot), side="left")])
        if until - sum(cells) >= SMALLEST_SHOWN and below[-1] - until >= SMALLEST_SHOWN:
            kept.append(knot)
            cells.append(until - sum(cells))
    return np.array(kept), np.array([*cells, below[-1] - sum(cells)])


def _outer(values: Values, weights: Floats, knot: float | None, bounds: _Bounds, below: bool) -> float:
    """The outer end of an outermost cell: as far beyond its middle as the inner knot lies before it, so that a straight
    line between the two has the cell's median. The middle has ten patients beyond it; in a cell where the median has
    not, it is the eleventh. The end lies on the same side of zero, which often is a border that no value crosses."""
    assert knot is not None  # a part has a cut point on one side
    beyond = min(max(0.5, (SMALLEST_SHOWN - 0.5) / max(float(weights.sum()) - 1, 1)), 1.0)
    middle = float(quantiles(values, weights, np.array([beyond if below else 1 - beyond]))[0])
    end = float(rounded(np.array([2 * middle + bounds.step - knot]))[0])
    if below:
        return min(bounds.up(max(end, 0.0) if middle >= 0 else end), bounds.up(knot - bounds.step))
    return max(bounds.up(min(end, 0.0) if middle < 0 else end), bounds.up(knot + bounds.step))
