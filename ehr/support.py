"""How many of the records that a model drew satisfy what is asked.

They are its reference cohort, drawn once after training and kept with the model. Nothing here has seen a patient: what
is answered, however often and however cleverly it is asked, is a function of that cohort.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records, indptr_of

BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)  # of each byte

MOST_LOOKED_AT = 20_000  # records, for a few that have what targets ask for


@dataclass(frozen=True)
class Requirement:
    """One thing a record must have or must not have: one of `codes`, or none of them."""

    codes: tuple[int, ...]
    wanted: bool = True


class DrawnOnce:
    """What a model drew once, `n_records` of it. `training_records`: from how many the model has learned, rounded; the
    same whatever is asked."""

    def __init__(self, n_records: int, training_records: int) -> None:
        self.n_records, self.training_records = n_records, training_records

    def expected_patients(self, count: int) -> float:
        """In how many training records one would find what `count` of the drawn ones satisfy."""
        return count * self.training_records / max(self.n_records, 1)

    def fewest_for(self, patients: int) -> int:
        """How many drawn records stand for so many training records; at least one."""
        return max(ceil(patients * self.n_records / max(self.training_records, 1)), 1)


class ReferenceCohort(DrawnOnce):
    """Which drawn records have each code: questions cost what their codes occur, not what the cohort holds."""

    def __init__(self, records: Records, training_records: int) -> None:
        super().__init__(len(records), training_records)
        by_code = np.argsort(_narrow(records.indices, records.n_codes), kind="stable")
        self._rows = np.repeat(np.arange(len(records), dtype=np.int32), records.sizes())[by_code]
        self._starts = indptr_of(records.counts())

    def holds(self, part: Requirement) -> NDArray[np.bool_]:
        """For which records the part holds, (R,)."""
        holds = np.full(self.n_records, not part.wanted)
        for code in part.codes:
            holds[self._rows[self._starts[code] : self._starts[code + 1]]] = part.wanted
        return holds

    def satisfied(self, parts: Sequence[Requirement]) -> NDArray[np.bool_]:
        """For which records all parts hold, (R,)."""
        satisfied = np.ones(self.n_records, dtype=bool)
        for part in parts:
            satisfied &= self.holds(part)
        return satisfied

    def count(self, parts: Sequence[Requirement]) -> int:
        """Records for which all parts hold."""
        return int(self.satisfied(parts).sum())

    def smallest_part(self, parts: Sequence[Requirement], targets: Sequence[tuple[int, ...]]) -> int:
        """Of the records for which all parts hold, divided by which of the targets they meet: the fewest in a part."""
        rows = np.flatnonzero(self.satisfied(parts))
        return smallest_of(len(rows), [self.holds(Requirement(codes))[rows] for codes in targets])

    def first(self, parts: Sequence[Requirement], shares: Sequence[tuple[tuple[int, ...], float]], n: int) -> list[int]:
        """The first records, n at most, for which all parts hold; of those, as large a share has one of each target's
        codes as it asks for, and the rest none. `shares`: the codes and the share of each target."""
        rows = np.flatnonzero(self.satisfied(parts))[:MOST_LOOKED_AT]
        meets = [self.holds(Requirement(codes))[rows] for codes, _ in shares]
        return [int(rows[place]) for place in dealt(meets, [share for _, share in shares], n, len(rows))]

    def codes_of(self, rows: Sequence[int]) -> list[list[int]]:
        """The codes of some records, ascending."""
        wanted = np.zeros(self.n_records, dtype=bool)
        wanted[list(rows)] = True
        places = np.flatnonzero(wanted[self._rows])
        codes: dict[int, list[int]] = {row: [] for row in rows}
        for row, code in zip(self._rows[places], np.searchsorted(self._starts, places, side="right") - 1, strict=True):
            codes[int(row)].append(int(code))
        return [codes[row] for row in rows]


def smallest_of(n: int, meets: Sequence[NDArray[np.bool_]]) -> int:
    """Of n records, divided by which targets they meet ((n,) for each target): the fewest in a part."""
    met = np.zeros(n, dtype=np.int64)
    for number, each in enumerate(meets):
        met |= each.astype(np.int64) << number
    return int(np.bincount(met, minlength=1 << len(meets)).min())


def dealt(meets: Sequence[NDArray[np.bool_]], shares: Sequence[float], n: int, rows: int) -> list[int]:
    """The first of so many rows, n at most, of which as large a share meets each target as it asks for."""
    room = [{True: round(share * n), False: n - round(share * n)} for share in shares]
    chosen: list[int] = []
    for row in range(rows):
        met = [bool(each[row]) for each in meets]
        if len(chosen) == n:
            break
        if all(left[has] > 0 for left, has in zip(room, met, strict=True)):
            for left, has in zip(room, met, strict=True):
                left[has] -= 1
            chosen.append(row)
    return chosen


class Selections:
    """Of how many drawn records every part of a selection holds. Selections asked for one after the other that begin
    alike share what they begin with."""

    def __init__(self, reference: ReferenceCohort, parts: Sequence[Requirement]) -> None:
        self._parts = [np.packbits(reference.holds(part)) for part in parts]  # a bit for each record
        self._everyone = np.packbits(np.ones(reference.n_records, dtype=bool))
        self._chosen: list[int] = []
        self._joint: list[NDArray[np.uint8]] = []  # of the first, of the first two, ...

    def count(self, chosen: Sequence[int]) -> int:
        """Records for which all of these parts hold."""
        shared = 0
        while shared < min(len(chosen), len(self._chosen)) and chosen[shared] == self._chosen[shared]:
            shared += 1
        del self._chosen[shared:], self._joint[shared:]
        for number in chosen[shared:]:
            before = self._joint[-1] if self._joint else self._everyone
            self._joint.append(before & self._parts[number])
            self._chosen.append(number)
        return int(BITS[self._joint[-1] if self._joint else self._everyone].sum(dtype=np.int64))


def _narrow(indices: NDArray[np.int32], n_codes: int) -> NDArray[np.int32] | NDArray[np.uint16]:
    """Sixteen bits where they are enough: NumPy then sorts by radix."""
    return indices.astype(np.uint16) if n_codes <= 1 << 16 else indices
