"""Numbers for decile codes: `LOINC:2345-7#D7` of a record becomes a value drawn from the lab's curve within the decile.

A draw depends on the cohort's seed, the record's number and the code alone: the same in every format, for blocks of any
size. That needs a random function of a counter instead of a Generator, whose draws come one after another.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ehr.codes.systems import split_decile, without_decile
from ehr.formats.write.protocol import Block, CohortSource, Ints
from ehr.labs import LabCurve, LabUnit, first_number

Floats = NDArray[np.float64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Cells:
    """The curve of one decile code, and the first and last number (times `scale`) that read as this decile."""

    knots: tuple[float, ...]
    below: Floats  # share of the decile that lies below each knot
    scale: float
    first: float
    last: float
    unit: LabUnit


class LabValues:
    """The numbers of a cohort's labs. `has_number` (N,) tells which codes have one; the others are left as they are."""

    def __init__(self, cohort: CohortSource) -> None:
        found = [_cells(code, cohort.lab_curves) for code in cohort.vocabulary]
        self.has_number: NDArray[np.bool_] = np.array([cells is not None for cells in found], dtype=bool)
        self.units = [LabUnit() if cells is None else cells.unit for cells in found]
        self.deciles = [split_decile(code)[1] for code in cohort.vocabulary]
        # what a code is called where its number stands beside it
        named = zip(cohort.vocabulary, self.has_number.tolist(), strict=True)
        self.names = [without_decile(code) if has_number else code for code, has_number in named]
        keys = [hashlib.sha256(f"{cohort.seed}\n{code}".encode()).digest()[:8] for code in cohort.vocabulary]
        self._keys = np.array([int.from_bytes(key, "little") for key in keys], dtype=np.uint64)
        known = [cells for cells in found if cells is not None]
        self._place = np.cumsum(self.has_number) - 1  # of each code that has one
        self._scale, self._first, self._last = (
            np.array([getattr(cells, name) for cells in known]) for name in ("scale", "first", "last")
        )
        # all curves one after another: code i's lies from i to i + 1, so that one search finds the cells of all rows
        self._below = np.concatenate([i + cells.below for i, cells in enumerate(known)] or [np.zeros(0)])
        self._knots = np.array([knot for cells in known for knot in cells.knots])

    def __bool__(self) -> bool:
        return bool(self.has_number.any())

    def of(self, block: Block) -> Floats:
        """The number of each row of a block, (R,); NaN where the code has none."""
        row, code = block.rows()
        numbers = np.full(len(code), np.nan)
        mine = self.has_number[code]
        numbers[mine] = self._drawn(row[mine] + block.first_record, code[mine])
        return numbers

    def _drawn(self, record: Ints, code: Ints) -> Floats:
        place = self._place[code]
        at = place + _uniform(self._keys[code], record)
        right = np.searchsorted(self._below, at, side="right")
        left = right - 1
        within = (at - self._below[left]) / (self._below[right] - self._below[left])
        value = self._knots[left] + within * (self._knots[right] - self._knots[left])
        # a number stands for all values from itself up to the next
        whole = np.clip(np.floor(value * self._scale[place]), self._first[place], self._last[place])
        drawn: Floats = whole / self._scale[place] + 0.0
        return drawn


def as_texts(numbers: Floats) -> pa.StringArray:
    """As short as they can be written; null where there is none."""
    return pa.array(numbers, pa.float64(), mask=np.isnan(numbers)).cast(pa.string())


def _uniform(key: NDArray[np.uint64], record: Ints) -> Floats:
    """From 0 up to 1: the `record`-th draw of SplitMix64 (Steele, Lea and Flood 2014) that was seeded with the key."""
    mixed = key + (record.astype(np.uint64) + np.uint64(1)) * GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    drawn: Floats = (mixed >> np.uint64(28)).astype(np.float64) * 2.0**-36  # leaves 17 bits for the code's place
    return drawn


def _cells(code: str, curves: Mapping[str, LabCurve]) -> Cells | None:
    """None if the code is no decile, or if none of its numbers is known."""
    curve, decile = curves.get(without_decile(code)), split_decile(code)[1]
    part = int(decile[1:]) - 1 if decile else -1
    if curve is None or not 0 <= part < len(curve.knots) or not curve.knots[part]:
        return None
    knots, shares, scale = curve.knots[part], np.array(curve.shares[part]), 10.0**curve.decimals
    first, last = _numbers_of(part, curve.cuts, knots, scale)
    if first > last:
        return None
    below = np.concatenate([[0.0], np.cumsum(shares) / shares.sum()])
    below[-1] = 1.0
    return Cells(knots, below, scale, first, last, curve.unit or LabUnit())


def _numbers_of(part: int, cuts: Sequence[float], knots: Sequence[float], scale: float) -> tuple[float, float]:
    """The first and last number of a part, times `scale`: from its lower cut point on, and below its upper one, as
    float32, in which deciles are told."""
    first = round(first_number(knots[0] if part == 0 else cuts[part - 1], scale) * scale)
    if part == len(cuts):
        return first, round(first_number(knots[-1], scale) * scale) - 1
    below = np.nextafter(np.float32(cuts[part]), np.float32(-np.inf))
    return first, float(np.floor(np.float64(below) * scale))
