"""An OMOP concept table in memory: sorted ids, a small number for each vocabulary, and the codes as one Arrow array.

Six million concepts take about 200 MB. Their names would take more than that, so only the concepts that were met are
described, in a second look at the table.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ehr.codes.systems import BY_OMOP
from ehr.formats.concepts import UNDEFINED, Concept
from ehr.formats.read.columns import stripped
from ehr.formats.read.tables import Rows

Ints = NDArray[np.int64]
LONGEST_TEXT = 255  # of the CDM's own columns
_ID = re.compile(r"-?[0-9]{1,18}")
# role of a column of the table -> field of a Concept
DESCRIBED = {"name": "name", "domain": "domain_id", "class": "concept_class_id", "standard": "standard_concept"}


class ConceptTable:
    def __init__(self) -> None:
        self._ids: Ints = np.zeros(0, dtype=np.int64)
        self._vocabulary: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._names: list[str] = []
        self._codes: pa.StringArray = pa.array([], pa.string())

    def __len__(self) -> int:
        return len(self._ids)

    @classmethod
    def read(cls, batches: Iterable[Rows]) -> Self:
        table = cls()
        numbers: dict[str, int] = {}
        ids, vocabularies, codes = [], [], []
        for rows in batches:
            number = as_ids(rows.columns["id"])
            named = pc.dictionary_encode(pc.fill_null(stripped(rows.columns["vocabulary"]), ""))
            to_number = np.array(
                [numbers.setdefault(name, len(numbers)) for name in named.dictionary.to_pylist()], dtype=np.int32
            )
            ids.append(number)
            vocabularies.append(to_number[named.indices.to_numpy()] if len(rows) else np.zeros(0, dtype=np.int32))
            codes.append(stripped(rows.columns["code"]))
        if ids:
            every = np.concatenate(ids)
            order = np.argsort(every, kind="stable")
            table._ids, table._vocabulary = every[order], np.concatenate(vocabularies)[order]
            table._codes = pa.chunked_array(codes, pa.string()).take(pa.array(order)).combine_chunks()
            table._names = list(numbers)
        return table

    def positions(self, wanted: Ints) -> Ints:
        """Where each id stands in the table; -1 if it does not. Id 0 stands for no concept."""
        if len(self) == 0:
            return np.full(len(wanted), -1)
        at = np.minimum(np.searchsorted(self._ids, wanted), len(self) - 1)
        return np.where((self._ids[at] == wanted) & (wanted != 0), at, -1)

    def systems(self, at: Ints, fallback: str) -> pa.StringArray:
        """The system at each position: our name for it, or the table's own; `fallback` where there is none."""
        names = [BY_OMOP.get(name.lower(), name.replace(":", "-") or fallback) for name in self._names]
        which = np.where(at >= 0, self._vocabulary[at] if len(self) else 0, len(names))
        return pa.array([*names, fallback], pa.string()).take(pa.array(which))

    def codes(self, at: Ints) -> pa.StringArray:
        """The code at each position, null where there is none."""
        return self._codes.take(pa.array(at, mask=at < 0))

    def concept(self, at: int) -> Concept | None:
        if at < 0:
            return None
        return Concept(int(self._ids[at]), self._names[self._vocabulary[at]], self._codes[at].as_py() or "")

    def described(self, ids: Iterable[int], batches: Iterable[Rows]) -> Iterator[Concept]:
        """The concepts that the table has, with all it says of them; `batches` are its rows once more."""
        ids = np.array(sorted(ids), dtype=np.int64)
        at = self.positions(ids).tolist()
        wanted = {concept.concept_id: concept for each in at if (concept := self.concept(each)) is not None}
        for rows in batches:
            met = rows.where(np.isin(as_ids(rows.columns["id"]), list(wanted)))
            texts = {
                role: pc.fill_null(stripped(met.columns[role]), "").to_pylist()
                for role in DESCRIBED
                if role in met.columns
            }
            for at, number in enumerate(as_ids(met.columns["id"]).tolist()):
                concept = wanted[number]
                said: dict[str, Any] = {DESCRIBED[role]: column[at][:LONGEST_TEXT] for role, column in texts.items()}
                nothing = ("", concept.concept_code, UNDEFINED)  # what must be filled in where nothing is known
                yield replace(concept, **{key: text for key, text in said.items() if text not in nothing})


def as_id(text: str) -> int:
    """As `as_ids` reads it."""
    return int(text) if _ID.fullmatch(text) else 0


def as_ids(column: pa.StringArray) -> Ints:
    """Ids as 64-bit numbers; 0 where they are none. Doubles would lose the last digits."""
    text = stripped(column)
    usable = pc.match_substring_regex(text, f"^{_ID.pattern}$")
    ids: Ints = pc.fill_null(pc.if_else(usable, text, "0"), "0").cast(pa.int64()).to_numpy()
    return ids
