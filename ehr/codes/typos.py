"""Words that are written almost like another one."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
N_LETTERS = len(LETTERS) + 1  # all other characters are counted together, in the last place
MOST_COUNTED = 100  # of a letter in a word; differences of eight bits stay in eight bits
PLACES = np.array([LETTERS.find(chr(each)) % N_LETTERS for each in range(129)], dtype=np.int64)


class WordList:
    """Words to compare others with. An edit changes the letters that a word has by two at most, which leaves few words
    whose distance must be worked out: a hundred thousand take milliseconds."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self._letters, self._lengths = _letters(words), np.array([len(word) for word in words], dtype=np.int64)

    def close(self, word: str, most: int) -> list[tuple[int, int]]:
        """(distance, position) of the words within `most` edits, the closest first."""
        as_long = np.flatnonzero(np.abs(self._lengths - len(word)) <= most)
        changed = np.abs(self._letters[as_long] - _letters([word])[0]).sum(1, dtype=np.int32)
        found = ((distance(word, self.words[i], most), i) for i in as_long[changed <= 2 * most].tolist())
        return sorted((edits, i) for edits, i in found if edits <= most)


def distance(a: str, b: str, most: int) -> int:
    """Letters to insert, drop, change or swap with their neighbour; `most` + 1 if they are more than that."""
    if abs(len(a) - len(b)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, start=1):
        earlier, before, row = before, row, [i]
        for j, other in enumerate(b, start=1):
            edits = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                edits = min(edits, earlier[j - 2] + 1)
            row.append(edits)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


def _letters(words: Sequence[str]) -> NDArray[np.int8]:
    """How often each word has each letter, (W, L)."""
    lengths = [len(word) for word in words]
    characters = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    place = PLACES[np.minimum(characters, len(PLACES) - 1)]
    row = np.repeat(np.arange(len(words)), lengths)
    counts = np.bincount(row * N_LETTERS + place, minlength=len(words) * N_LETTERS)
    return counts.clip(max=MOST_COUNTED).reshape(len(words), N_LETTERS).astype(np.int8)
