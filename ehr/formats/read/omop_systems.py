"""The system of source values whose concepts the upload does not explain.

By shape: of a value that has a concept of a public vocabulary always, of others where nearly all of a table have one,
because a hospital's own numbers may look like ICD-9 now and then.

An E or V code that could be of ICD-9 and of ICD-10 is of the one
1. whose concept ids lie nearest to its own, because vocabularies got their ids in blocks;
2. that the upload's other diagnoses are of, if they are all of one;
3. that was in use on its day;
4. in which it is complete;
5. that is likelier: an E code of ICD-10 is a common disease, and a V code of ICD-10 is complete with seven characters.
"""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ehr.codes.shapes import BY_DOMAIN, Systems, complete_in
from ehr.codes.systems import Domain
from ehr.formats.read.columns import as_days

Ints = NDArray[np.int64]
NEARLY_ALL = 0.9
# shapes that no other drug or measurement has need no company
DISTINCTIVE = ("drug", "measurement")
# five digits are anybody's: such a value is of CPT only if somebody gave it a concept of a public vocabulary
NEEDS_CONCEPT = ("CPT", "HCPCS")
FIRST_LOCAL = 2_000_000_000
IN_USE = {  # in the United States; later years are dates that were moved to hide the true ones
    "ICD9DX": (datetime.date(1979, 1, 1), datetime.date(2015, 10, 1)),
    "ICD10CM": (datetime.date(2015, 10, 1), datetime.date(2040, 1, 1)),
}
BY_LETTER = {"E": "ICD10CM", "V": "ICD9DX"}


class SystemsByShape:
    """Of one upload: what was decided for a value and its concept holds for the rest of it."""

    def __init__(self) -> None:
        self._have_shapes: dict[Domain, bool] = {}
        self._ids: dict[str, Ints] = {}  # ICD-9 or ICD-10 -> concept ids of values that are certainly of it
        self._decided: dict[tuple[str, int], str] = {}

    def of(
        self, domain: Domain, code: pa.StringArray, concept: Ints, day: pa.StringArray | None, fallback: str
    ) -> pa.StringArray:
        """The system of each value; `concept` are source concept ids, 0 where there is none."""
        if len(code) == 0:
            return pa.array([], pa.string())
        texts = pc.dictionary_encode(pc.fill_null(code, ""))
        values, row = texts.dictionary.to_pylist(), texts.indices.to_numpy()
        possible = [BY_DOMAIN[domain](text) if text and domain in BY_DOMAIN else () for text in values]
        names = [fallback, *sorted({system for found in possible for system in found})]
        public = np.where((concept > 0) & (concept < FIRST_LOCAL), concept, 0)
        system = np.array([names.index(found[0]) if found else 0 for found in possible])[row]
        others = np.unique(row[public == 0]).tolist()
        if not self._look_so(domain, [possible[at] for at in others if values[at]]):
            system[public == 0] = 0
        system[np.isin(system, [names.index(name) for name in NEEDS_CONCEPT if name in names]) & (public == 0)] = 0
        unsure = np.array([len(found) > 1 for found in possible])[row] & (system > 0)
        for name in set(names) & set(IN_USE):
            self._learn(name, public[~unsure & (system == names.index(name))])
        if unsure.any():
            at = np.flatnonzero(unsure)
            days = [None] * len(at) if day is None else as_days(day.take(pa.array(at))).to_pylist()
            asked = zip((values[i] for i in row[at]), public[at].tolist(), days, strict=True)
            system[at] = [names.index(self._decide(*each)) for each in asked]
        return pa.array(names, pa.string()).take(pa.array(system))

    def _look_so(self, domain: Domain, possible: list[Systems]) -> bool:
        """Whether values without a public concept have shapes, decided by the first there are."""
        if domain in DISTINCTIVE:
            return True
        if domain not in self._have_shapes and possible:
            self._have_shapes[domain] = sum(map(bool, possible)) >= NEARLY_ALL * len(possible)
        return self._have_shapes.get(domain, False)

    def _learn(self, system: str, ids: Ints) -> None:
        if len(ids):
            known = self._ids.get(system, np.zeros(0, dtype=np.int64))
            self._ids[system] = np.union1d(known, ids[ids > 0])

    def _decide(self, text: str, concept: int, day: datetime.date | None) -> str:
        if concept > 0 and any(map(len, self._ids.values())):
            if (text, concept) not in self._decided:
                nearest = {name: int(np.abs(ids - concept).min()) for name, ids in self._ids.items() if len(ids)}
                self._decided[text, concept] = min(nearest, key=nearest.__getitem__)
            return self._decided[text, concept]
        in_use = [] if day is None else [name for name, (first, end) in IN_USE.items() if first <= day < end]
        likely = (tuple(self._ids), in_use, complete_in(text), (BY_LETTER[text[0].upper()],))
        return next(found[0] for found in likely if len(found) == 1)
