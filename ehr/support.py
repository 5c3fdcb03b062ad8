"""How many training records satisfy what is asked. Counts leave through `Support` alone, which hides small ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ehr.disclosure import SMALLEST_SHOWN, rounded
from ehr.records import Records, indptr_of

Seen = Literal["yes", "no", "fewer than 11", "not known"]
MOST_PATTERNS = 2_000  # that are compared with each other


@dataclass(frozen=True)
class Support:
    """What may be told: `records` rounded, None where it is hidden or not known."""

    seen: Seen
    records: int | None

    @property
    def is_enough(self) -> bool:
        return self.seen in ("yes", "not known")


UNKNOWN = Support("not known", None)


@dataclass(frozen=True)
class Requirement:
    """One thing a record must have or must not have: one of `codes`, or none of them."""

    codes: tuple[int, ...]
    wanted: bool = True


class TrainingIndex:
    """Which training records have each code: questions cost what their codes occur, not what the dataset holds."""

    def __init__(self, records: Records) -> None:
        self.n_records = len(records)
        by_code = np.argsort(_narrow(records.indices, records.n_codes), kind="stable")
        self._rows = np.repeat(np.arange(len(records), dtype=np.int32), records.sizes())[by_code]
        self._starts = indptr_of(np.bincount(records.indices, minlength=records.n_codes))

    def holds(self, part: Requirement) -> NDArray[np.bool_]:
        """For which records the part holds, (R,)."""
        holds = np.full(self.n_records, not part.wanted)
        for code in part.codes:
            holds[self._rows[self._starts[code] : self._starts[code + 1]]] = part.wanted
        return holds

    def support(self, parts: Sequence[Requirement]) -> Support:
        """What may be told of the records for which all parts hold."""
        satisfied = np.ones(self.n_records, dtype=bool)
        for part in parts:
            satisfied &= self.holds(part)
        count = int(satisfied.sum())
        if count >= SMALLEST_SHOWN:
            return Support("yes", rounded(count, self.n_records))
        if count == 0 and self.patterns(parts).may_tell_that_none_has_all():
            return Support("no", 0)
        return Support("fewer than 11", None)

    def patterns(self, parts: Sequence[Requirement]) -> "Patterns":
        """Which combinations of the parts occur, and how often."""
        if not parts:
            return Patterns(np.zeros((1, 0), dtype=bool), np.array([self.n_records]))
        holds = np.zeros((self.n_records, len(parts)), dtype=bool)
        for number, part in enumerate(parts):
            holds[:, number] = self.holds(part)
        packed = np.packbits(holds, axis=1)
        padded = np.zeros((self.n_records, -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
        padded[:, : packed.shape[1]] = packed
        keys = padded.view(np.uint64)
        if keys.shape[1] == 1:  # sorting numbers is much faster than sorting rows
            _, first, counts = np.unique(keys[:, 0], return_index=True, return_counts=True)
        else:
            _, first, counts = np.unique(keys, axis=0, return_index=True, return_counts=True)
        return Patterns(holds[first], counts)


@dataclass(frozen=True)
class Patterns:
    """Distinct combinations of parts that hold for a record, (U, P), and how many records have each, (U,)."""

    holds: NDArray[np.bool_]
    counts: NDArray[np.int64]

    def count(self, kept: Sequence[int]) -> int:
        """Records for which all of these parts hold. Not to be shown."""
        return int(self.counts[self.holds[:, list(kept)].all(1)].sum())

    def may_tell_that_none_has_all(self) -> bool:
        """Whether "nobody has all of it" says nothing about a group of 1 to 10: no selection of the parts is one.

        Told that nobody has A, B and C, who knows that three have A and B would learn that these three lack C.
        """
        if len(self.counts) > MOST_PATTERNS:
            return False
        holds = self.holds.astype(np.float32)
        size = holds.sum(1)
        includes = holds @ holds.T == size[:, None]  # pattern j has all that pattern i has
        return bool((includes @ self.counts).min(initial=SMALLEST_SHOWN) >= SMALLEST_SHOWN)


def _narrow(indices: NDArray[np.int32], n_codes: int) -> NDArray[np.int32] | NDArray[np.uint16]:
    """Sixteen bits where they are enough: NumPy then sorts by radix."""
    return indices.astype(np.uint16) if n_codes <= 1 << 16 else indices
