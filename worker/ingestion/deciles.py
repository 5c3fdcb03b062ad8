"""Lab values as decile codes, `LOINC:2345-7#D7`. The cut points come from training records only: what a model is tested
on must not have shaped its codes."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ehr.codes.systems import DECILE
from ehr.disclosure import SMALLEST_SHOWN
from worker.ingestion.numbering import Ints, Numbering

PARTS = 10
# Cut points are stored and shown: with this many patients in each part, none is one patient's value.
FEWEST_PATIENTS = PARTS * SMALLEST_SHOWN
SIGNIFICANT = 4


@dataclass
class Labs:
    """Rows (record, code, value), and after `code_up` the cut points of each lab."""

    records: list[NDArray[np.int32]] = field(default_factory=list)
    codes: list[NDArray[np.int32]] = field(default_factory=list)
    values: list[NDArray[np.float32]] = field(default_factory=list)
    cuts: dict[str, list[float]] = field(default_factory=dict)
    without_cuts: int = 0

    def add(self, record: Ints, code: Ints, value: NDArray[np.float64]) -> None:
        self.records.append(record.astype(np.int32))
        self.codes.append(code.astype(np.int32))
        self.values.append(value.astype(np.float32))

    def code_up(self, names: Numbering, patient_of: Ints, trains: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """(record, code) of every row, the code with its decile; without one where too few patients had the lab."""
        if not self.records:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        record, code = (np.concatenate(column) for column in (self.records, self.codes))
        value = np.concatenate(self.values)
        order = np.argsort(code, kind="stable")
        value = value[order]
        who, what = record[order].astype(np.int64), code[order].astype(np.int64)
        texts = list(names.number_of)
        starts = np.flatnonzero(np.concatenate([[True], what[1:] != what[:-1]]))
        for start, end in zip(starts, [*starts[1:], len(what)], strict=True):
            own, numbers = slice(start, end), value[start:end]
            learning = trains[who[own]]
            if len(np.unique(patient_of[who[own]][learning])) < FEWEST_PATIENTS:
                self.without_cuts += 1
                continue
            lab = texts[what[start]]
            self.cuts[lab] = cut_points(numbers[learning])
            decile = np.searchsorted(self.cuts[lab], numbers, side="right") + 1
            of_decile = np.array([names.number(f"{lab}{DECILE}{d}") for d in range(1, PARTS + 1)])
            what[own] = of_decile[decile - 1]
        return who, what


def cut_points(values: NDArray[np.float32]) -> list[float]:
    """The nine values between ten parts, rounded: a cut point need not be anybody's exact value."""
    cuts = np.quantile(values.astype(np.float64), np.arange(1, PARTS) / PARTS)
    return [float(f"{cut:.{SIGNIFICANT}g}") for cut in cuts]
