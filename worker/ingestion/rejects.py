"""Rows that could not be used: counted by reason, with the first line numbers, and never quoted."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST_LINES = 5


class Rejects:
    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._lines: dict[str, list[int]] = {}

    def add(self, reason: str, lines: NDArray[np.int64] | list[int]) -> None:
        """Rows at these lines were left out."""
        if len(lines) == 0:
            return
        self._rows[reason] = self._rows.get(reason, 0) + len(lines)
        first = self._lines.setdefault(reason, [])
        first.extend(int(line) for line in lines[: FIRST_LINES - len(first)])

    def told(self) -> dict[str, Any]:
        return {reason: {"rows": rows, "first_lines": self._lines[reason]} for reason, rows in self._rows.items()}
