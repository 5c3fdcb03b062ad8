"""Codes found by words of their names or by how they begin: several words in any order, small typos allowed."""

import re
import unicodedata
from collections.abc import Sequence

from ehr.codes.typos import WordList

NO_WORD = re.compile(r"[\W_]+")
SHORTEST_TYPO = 4  # letters; a shorter word that is found nowhere is another word
MOST_WORDS = 8
MOST_RANKED = 5_000  # codes; who finds more has asked for no code in particular


def folded(text: str) -> str:
    """Without capitals and accents."""
    if not text.isascii():
        text = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return text.casefold()


def typos_in(word: str) -> int:
    """How many letters of a word may be wrong."""
    return 0 if len(word) < SHORTEST_TYPO else 1 if len(word) < 8 else 2


class CodeSearch:
    """An index over codes and what they are called; made once for a vocabulary, in a second for 100,000 codes."""

    def __init__(self, codes: Sequence[str], names: Sequence[str | None]) -> None:
        self._codes = [folded(code) for code in codes]
        plain = [folded(name or "") for name in names]
        self._texts = [f"{code} {name}" for code, name in zip(self._codes, plain, strict=True)]
        self._names = [f" {NO_WORD.sub(' ', name)} " for name in plain]  # so that a whole word has blanks around it
        # Numbers are no words: one digit off is another number.
        words = {word for word in " ".join(self._names).split() if not word.isdecimal()}
        self._words = WordList(sorted(word for word in words if len(word) >= SHORTEST_TYPO - 1))

    def search(self, text: str) -> list[int]:
        """Positions of the codes that have every word of the text, the best first; all codes if it has no word.

        Best are codes that begin like the text, then names that have the words as words and not as parts of others,
        then the shorter name. A word that no code has stands for the words that are written almost like it.
        """
        words = folded(text).split()[:MOST_WORDS]
        if not words:
            return list(range(len(self._codes)))
        wanted = [(word,) if any(word in each for each in self._texts) else self._spellings(word) for word in words]
        found = self._having(wanted)
        if not found:  # a word may be right by itself and wrong beside the others: hart failure
            wanted = [(word, *self._spellings(word)) for word in words]
            found = self._having(wanted)
        first = words[0].replace(".", "")
        if len(found) > MOST_RANKED:
            return sorted(found, key=lambda i: self._begins(i, first))
        return sorted(found, key=lambda i: self._rank(i, first, wanted))

    def _having(self, wanted: Sequence[Sequence[str]]) -> list[int]:
        """The codes that have, of each word, one of its spellings."""
        texts, found = self._texts, list(range(len(self._codes)))
        for spellings in wanted:
            if len(spellings) == 1:
                word = spellings[0]
                found = [i for i in found if word in texts[i]]
            else:
                found = [i for i in found if any(word in texts[i] for word in spellings)]
        return found

    def _spellings(self, word: str) -> tuple[str, ...]:
        """What a word that no code has may have meant: a code without its dot, or the closest words of names."""
        plain = word.replace(".", "")
        if plain != word and any(plain in code for code in self._codes):
            return (plain,)
        close = self._words.close(word, typos_in(word))
        return tuple(self._words.words[i] for edits, i in close if edits == close[0][0])

    def _begins(self, i: int, first: str) -> int:
        """0 if a code is what was asked for, 1 if it begins like it, 2 if not."""
        code = self._codes[i]
        rest = code.partition(":")[2]
        return 0 if first in (code, rest) else 1 if code.startswith(first) or rest.startswith(first) else 2

    def _rank(self, i: int, first: str, wanted: Sequence[Sequence[str]]) -> tuple[int, int, int, int]:
        begins, name = self._begins(i, first), self._names[i]
        if begins < 2:
            return begins, 0, 0, i
        parts = sum(not any(f" {word} " in name for word in spellings) for spellings in wanted)
        return begins, parts, len(name), i
