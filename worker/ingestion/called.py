"""What rows call their codes. A text becomes the name of a code only if the rows of at least 11 patients say so.

Such a text may be a clinician's note, and what stands beside one patient's code may be about that patient. The same
text beside the same code of 11 patients is how the source calls it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ehr.codes.names import cleaned
from ehr.disclosure import SMALLEST_SHOWN
from ehr.formats.read.protocol import Reader
from worker.ingestion.numbering import Ints

MOST_PAIRS = 300_000  # of a code and a text; in a column of notes every row would be one
NONE = -1


def given_names(reader: Reader, called: Mapping[str, str]) -> dict[str, str]:
    """What an upload calls its codes: in tables of codes, which are about nobody, else in enough rows."""
    concepts = {code: found.name for code, found in reader.concepts.items() if found.name is not None}
    return {**called, **concepts, **reader.names}


@dataclass
class Called:
    """Counts, for each pair of a code and a text, rows and patients; of patients as many as matter."""

    texts: dict[str, int] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)  # code and text as one number -> place in the lists below
    rows: list[int] = field(default_factory=list)
    patients: list[set[int] | None] = field(default_factory=list)  # None: there are enough

    def add(self, code: Ints, patient: Ints, text: pa.StringArray) -> None:
        """Rows with a code each, whose it is and what it is called there."""
        numbers = self._numbers(text)
        some = numbers != NONE
        pair, patient = code[some] * MOST_PAIRS + numbers[some], patient[some]
        pairs, which, counts = np.unique(pair, return_inverse=True, return_counts=True)
        places = np.array([*map(self._place, pairs.tolist(), counts.tolist())], dtype=np.int64)
        # common pairs have enough patients after the first rows: few rows are looked at one by one
        waits = np.array([at != NONE and self.patients[at] is not None for at in places.tolist()], dtype=bool)[which]
        for at, who in {*zip(places[which][waits].tolist(), patient[waits].tolist(), strict=True)}:
            seen = self.patients[at]
            if seen is not None:
                seen.add(who)
                if len(seen) >= SMALLEST_SHOWN:
                    self.patients[at] = None

    def names(self, codes: list[str]) -> dict[str, str]:
        """Of each code the text that most rows have, of those that enough patients have; `codes` by their numbers."""
        texts = list(self.texts)
        best: dict[str, tuple[int, str]] = {}
        for pair, place in self.pairs.items():
            if self.patients[place] is None:
                code, text = codes[pair // MOST_PAIRS], texts[pair % MOST_PAIRS]
                found = (-self.rows[place], text)
                best[code] = min(best.get(code, found), found)
        return {code: text for code, (_, text) in best.items()}

    def _numbers(self, column: pa.StringArray) -> Ints:
        """A number for each row's text; NONE where there is none."""
        encoded = pc.dictionary_encode(column)
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        texts = [*map(self._number, encoded.dictionary.to_pylist()), NONE]
        found: Ints = np.array(texts, dtype=np.int64)[pc.fill_null(encoded.indices, len(texts) - 1).to_numpy()]
        return found

    def _number(self, text: str) -> int:
        """Nearly every text has been seen before, or is one of too many."""
        number = self.texts.get(text)
        if number is not None:
            return number
        if len(self.texts) >= MOST_PAIRS or (name := cleaned(text)) is None:
            return NONE
        return self.texts.setdefault(name, len(self.texts))

    def _place(self, pair: int, rows: int) -> int:
        """Where a pair is counted, with some more rows; NONE if there are too many."""
        place = self.pairs.get(pair, NONE)
        if place == NONE and len(self.pairs) < MOST_PAIRS:
            place = self.pairs[pair] = len(self.rows)
            self.rows.append(0)
            self.patients.append(set())
        if place != NONE:
            self.rows[place] += rows
        return place
