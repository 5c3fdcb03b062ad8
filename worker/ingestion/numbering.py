"""Text to numbers: ids and codes are looked at once for each distinct text of a batch."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

EMPTY, TOO_LONG, UNPRINTABLE = -1, -2, -3
FAULTS = ((EMPTY, "empty"), (TOO_LONG, "too-long"), (UNPRINTABLE, "control-character-in"))
Ints = NDArray[np.int64]


@dataclass
class Numbering:
    """Text to numbers, in order of appearance."""

    longest: int
    number_of: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.number_of)

    def number(self, text: str | None) -> int:
        """The number of a text without its padding; one of FAULTS if it is none."""
        stripped = "" if text is None else text.strip()
        if stripped == "":
            return EMPTY
        if len(stripped) > self.longest or len(stripped.encode()) > self.longest:
            return TOO_LONG
        if not stripped.isprintable() and min(stripped) < " ":
            return UNPRINTABLE
        return self.number_of.setdefault(stripped, len(self.number_of))

    def of_column(self, column: pa.StringArray) -> Ints:
        """A number for each row; every distinct text is looked at once."""
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        if len(encoded) == 0:
            return np.zeros(0, dtype=np.int64)
        texts = encoded.dictionary.to_pylist()
        # nearly every text has been seen before: those are found without a call of ours
        known = list(map(self.number_of.get, texts))
        numbers = [self.number(text) if n is None else n for text, n in zip(texts, known, strict=True)]
        of_rows: Ints = np.array(numbers, dtype=np.int64)[encoded.indices.to_numpy()]
        return of_rows


class Growing:
    """An array with a place for each number, that grows as numbers come."""

    def __init__(self, fill: int) -> None:
        self.fill, self.values = fill, np.full(1024, fill, dtype=np.int64)

    def up_to(self, n: int) -> Ints:
        """At least `n` places."""
        while len(self.values) < n:
            self.values = np.concatenate([self.values, np.full_like(self.values, self.fill)])
        return self.values
