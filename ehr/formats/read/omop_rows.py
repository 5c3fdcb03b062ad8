"""How rows of an OMOP upload stand in its CDM, as numbers: the ways there are, and which of them each row has."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ehr.formats.cdm import Period, Person, Row, Visit
from ehr.formats.read.columns import stripped
from ehr.formats.read.omop_concepts import as_id

Ints = NDArray[np.int64]
Way = TypeVar("Way", Row, Person, Visit, Period)
TEXTS = ("race_source_value", "ethnicity_source_value", "source_code")  # fields; the others are ids
# Ways that differ in free text could be as many as there are rows: from here on the text is left away.
MOST_WAYS = 1 << 18


class Ways(Generic[Way]):
    """Distinct ways, numbered as they come."""

    def __init__(self, make: Callable[..., Way]) -> None:
        self.found: list[Way] = []
        self._make: Callable[..., Way] = make
        self._numbers: dict[Way, int] = {}
        self._seen: dict[tuple[str, ...], int] = {}  # texts of a row -> number: nearly every row has been seen before

    def of_rows(self, n: int, columns: Mapping[str, pa.StringArray], **same: str) -> Ints:
        """The number of each of n rows; `columns` are by field. Every distinct combination is looked at once."""
        key = np.zeros(n, dtype=np.int64)
        if n == 0:
            return key
        choices: list[list[str]] = []
        for column in columns.values():
            coded = pc.dictionary_encode(pc.fill_null(stripped(column), ""))
            choices.append(coded.dictionary.to_pylist())
            key = key * len(choices[-1]) + coded.indices.to_numpy()
        distinct, which = np.unique(key, return_inverse=True)
        texts: list[list[str]] = []
        for values in reversed(choices):
            distinct, at = np.divmod(distinct, len(values))
            texts.append([values[i] for i in at.tolist()])
        rows = zip(*reversed(texts), strict=True) if texts else iter([()])
        numbers = [self._number(row, tuple(columns), same) for row in rows]
        return np.array(numbers, dtype=np.int64)[which]

    def _number(self, row: tuple[str, ...], fields: tuple[str, ...], same: Mapping[str, str]) -> int:
        seen = self._seen.get((*same.values(), *row))
        if seen is not None:
            return seen
        said: dict[str, Any] = {
            field: text if field in TEXTS else as_id(text) for field, text in zip(fields, row, strict=True)
        }
        full = len(self.found) >= MOST_WAYS
        way = self._make(**same, **{field: value for field, value in said.items() if not (full and field in TEXTS)})
        number = self._numbers.setdefault(way, len(self.found))
        if number == len(self.found):
            self.found.append(way)
        if not full:
            self._seen[(*same.values(), *row)] = number
        return number
