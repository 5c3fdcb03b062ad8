"""Rows that could not be used: counted by reason, with the first line numbers, and never quoted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST_LINES = 5


class Rejects:
    """Lines are counted in rows, the header being line 1, and belong to the first file that had the fault."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._lines: dict[str, tuple[str, list[int]]] = {}

    def add(self, reason: str, lines: NDArray[np.int64] | Sequence[int], file: str = "") -> None:
        """Rows at these lines of a file were left out."""
        if len(lines) == 0:
            return
        self._rows[reason] = self._rows.get(reason, 0) + len(lines)
        first_file, first = self._lines.setdefault(reason, (file, []))
        if first_file == file:
            first.extend(int(line) for line in lines[: FIRST_LINES - len(first)])

    @property
    def rows(self) -> int:
        return sum(self._rows.values())

    def summary(self) -> dict[str, Any]:
        return {
            reason: {"rows": rows, "file": self._lines[reason][0], "first_lines": self._lines[reason][1]}
            for reason, rows in self._rows.items()
        }
