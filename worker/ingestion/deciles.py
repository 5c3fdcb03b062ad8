"""Lab values as decile codes, `LOINC:2345-7#D7`. Cut points and curves come from training records only: what a model is
tested on must not have shaped its codes.

A lab has one unit: the one in which most training patients have it. A value in another unit, or in none where there is
one, is no number of this lab; what is left of it is that the lab was taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ehr.codes.systems import DECILE, without_decile
from ehr.disclosure import SMALLEST_SHOWN, shown
from ehr.labs import PARTS, LabCurve, LabUnit
from worker.ingestion.lab_curves import FEWEST_PATIENTS, decile_of, learned
from worker.ingestion.numbering import EMPTY, Ints, Numbering

Mask = NDArray[np.bool_]


@dataclass
class Labs:
    """Rows (record, kind, value), where a kind is a code in a unit; after `code_up`, the curve of each lab."""

    units: Numbering
    records: list[NDArray[np.int32]] = field(default_factory=list)
    values: list[NDArray[np.float32]] = field(default_factory=list)
    curves: dict[str, LabCurve] = field(default_factory=dict)
    without_cuts: int = 0
    in_other_units: int = 0  # rows
    _kinds: list[NDArray[np.int32]] = field(default_factory=list)
    _number_of: dict[int, int] = field(default_factory=dict)  # code and unit, as one number -> kind
    _code_and_unit: list[tuple[int, int]] = field(default_factory=list)  # of each kind

    def add(
        self, record: Ints, code: Ints, value: NDArray[np.float32], unit: pa.StringArray | None, names: Numbering
    ) -> None:
        """Rows with a number. A code that has a decile already is that lab: its number counts."""
        of_rows = np.full(len(code), EMPTY) if unit is None else np.maximum(self.units.of_column(unit), EMPTY)
        pairs, inverse = np.unique(code * (1 << 32) + of_rows + 1, return_inverse=True)
        if any(pair not in self._number_of for pair in pairs.tolist()):
            self._number_kinds(pairs.tolist(), names)
        kind = np.array([self._number_of[pair] for pair in pairs.tolist()], dtype=np.int32)[inverse]
        self.records.append(record.astype(np.int32))
        self._kinds.append(kind)
        self.values.append(value)

    def _number_kinds(self, pairs: list[int], names: Numbering) -> None:
        texts = list(names.number_of)
        for pair in pairs:
            if pair not in self._number_of:
                code, unit = pair // (1 << 32), pair % (1 << 32) - 1
                self._number_of[pair] = len(self._code_and_unit)
                self._code_and_unit.append((names.number(without_decile(texts[code])), unit))

    def code_up(self, names: Numbering, patient_of: Ints, trains: Mask) -> tuple[Ints, Ints]:
        """(record, code) of every row, the code with its decile; without one where too few patients had the lab."""
        if not self.records:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        record, kind = (np.concatenate(column) for column in (self.records, self._kinds))
        code_of, unit_of = np.array(self._code_and_unit, dtype=np.int64).T
        order = np.argsort(code_of[kind], kind="stable")
        kind, value = kind[order], np.concatenate(self.values)[order]
        who, what, unit = record[order].astype(np.int64), code_of[kind], unit_of[kind]
        texts, units = list(names.number_of), list(self.units.number_of)
        starts = np.flatnonzero(np.concatenate([[True], what[1:] != what[:-1]]))
        for start, end in zip(starts, [*starts[1:], len(what)], strict=True):
            own, lab = slice(start, end), texts[what[start]]
            learning, patient = trains[who[own]], patient_of[who[own]]
            in_unit, text = _commonest(unit[own], patient, learning, units)
            learning &= in_unit
            if len(np.unique(patient[learning])) < FEWEST_PATIENTS:
                self.without_cuts += 1
                continue
            self.in_other_units += int((~in_unit).sum())
            curve = learned(value[own][learning], patient[learning], LabUnit(text) if text else None)
            self.curves[lab] = curve
            of_decile = np.array([names.number(f"{lab}{DECILE}{d}") for d in range(1, PARTS + 1)])
            what[own][in_unit] = of_decile[decile_of(value[own][in_unit], curve.cuts)]
        return who, what

    def summary(self) -> dict[str, int | None]:
        """What may be shown of what became of labs."""
        return {
            "with_deciles": len(self.curves),
            "with_unit": sum(curve.unit is not None for curve in self.curves.values()),
            "too_few": self.without_cuts,
            "rows_in_other_units": shown(self.in_other_units),
        }


def _commonest(unit: Ints, patient: Ints, learning: Mask, texts: Sequence[str]) -> tuple[Mask, str]:
    """(rows in the unit that most learning patients have, how it is spelt); empty where it is none, or where no
    spelling of it is shared by eleven patients. Capitals and blanks make no difference."""
    kinds, of_row = np.unique(unit, return_inverse=True)
    if len(kinds) == 1 and kinds[0] == EMPTY:
        return np.ones(len(unit), dtype=bool), ""
    spellings = ["" if kind == EMPTY else texts[kind] for kind in kinds.tolist()]
    folded, same = np.unique(["".join(text.split()).casefold() for text in spellings], return_inverse=True)
    best = int(_holders(same[of_row][learning], patient[learning], len(folded)).argmax())
    holders = np.where(same == best, _holders(of_row[learning], patient[learning], len(kinds)), 0)
    shared = holders.max() >= SMALLEST_SHOWN
    return same[of_row] == best, spellings[int(holders.argmax())] if shared else ""


def _holders(what: Ints, patient: Ints, n: int) -> Ints:
    """How many patients have each of `n` things."""
    pairs = np.unique(what * (int(patient.max(initial=0)) + 1) + patient)
    return np.bincount(pairs // (int(patient.max(initial=0)) + 1), minlength=n)
