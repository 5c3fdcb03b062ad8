"""wide: a row per record and a column per SYSTEM:CODE, 0/1 or counts, in CSV, Parquet or .npz.

Beside record_id and patient_id every column is a code, in histories beside date as well. An empty cell is 0. Records
without codes are there.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ehr.errors import DataError, RequestError
from ehr.formats.read.columns import as_days, as_numbers, filled, visit_ids
from ehr.formats.read.npz import is_matrix, read_matrix
from ehr.formats.read.protocol import Batch, Events, Reader, Visits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.tables import Rows, read_rows
from ehr.formats.spreadsheet import as_meant

IDS = ("record_id", "patient_id")
DATE = "date"  # of visits, in histories
CELLS_AT_A_TIME = 1 << 22


class WideReader(Reader):
    name = "wide"
    generality = 2

    @classmethod
    def tables_in(cls, files: Sequence[SourceFile]) -> dict[int, str]:
        if any(is_matrix(file) for file in files):
            return {i: "matrix" if is_matrix(file) else "vocabulary" for i, file in enumerate(files)}
        return {i: "wide" for i, file in enumerate(files) if _is_wide(file)}

    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        if any(is_matrix(file) for file in self.files):
            if self.unit != "visit":
                raise RequestError("a matrix names no patients: its records are visits")
            yield from read_matrix(self.files, self.options.default_vocabulary)
            return
        for file in self.files:
            if self.unit == "visit" and "record_id" not in file.plain_columns:
                raise DataError("the file has no column record_id; beside it, every column is a code")
            if self.unit != "visit" and "patient_id" not in file.plain_columns:
                raise DataError("the file has no column patient_id")
            if self.over_time and DATE not in file.plain_columns:
                raise DataError("the file has no column date, which says when a visit was")
            if len(set(file.columns)) < len(file.columns):
                raise DataError("a code has two columns")
            yield from self._of_file(file, rejects)

    def _of_file(self, file: SourceFile, rejects: Rejects) -> Iterator[Batch]:
        ids = [name for name in (*IDS, *((DATE,) if self.over_time else ())) if name in file.plain_columns]
        names = as_meant(pa.array([name.strip() for name in file.columns], pa.string())).to_pylist()
        codes = {i: name for i, name in enumerate(names) if file.plain_columns[i] not in ids}
        wanted = {name: file.plain_columns.index(name) for name in ids} | {str(i): i for i in codes}
        # a cell is two bytes or more: this bounds the cells that are in memory at once
        header = sum(len(name) + 1 for name in file.columns)
        for rows in read_rows(file, wanted, rejects, block_bytes=max(2 * CELLS_AT_A_TIME, 4 * header)):
            for first in range(0, len(rows), step := max(CELLS_AT_A_TIME // max(len(codes), 1), 1)):
                mask = np.zeros(len(rows), dtype=bool)
                mask[first : first + step] = True
                yield from self._of_rows(rows.where(mask), codes, rejects)

    def _of_rows(self, rows: Rows, codes: dict[int, str], rejects: Rejects) -> Iterator[Batch]:
        good = np.ones(len(rows), dtype=bool)
        present: dict[int, NDArray[np.int64]] = {}
        for i in codes:
            has, readable = _has_code(rows.columns[str(i)])
            good &= readable
            if has.any():
                present[i] = np.flatnonzero(has)
        rejects.add("not-a-count", rows.lines[~good], rows.file)
        day = as_days(rows.columns[DATE]).filter(pa.array(good)) if self.over_time else None
        yield Visits(rows.file, rows.lines[good], *self._who(rows, np.flatnonzero(good)), day, counts=True)
        if present:
            at = np.concatenate([where[good[where]] for where in present.values()])
            which = np.repeat(np.arange(len(present)), [good[where].sum() for where in present.values()])
            default = self.options.default_vocabulary
            names = [f"{default}:{codes[i]}" if default and ":" not in codes[i] else codes[i] for i in present]
            record, patient = self._who(rows, at)
            code = pa.array(names, pa.string()).take(pa.array(which))
            yield Events(rows.file, rows.lines[at], record, code, None, patient)

    def _who(self, rows: Rows, at: NDArray[np.int64]) -> tuple[pa.StringArray, pa.StringArray | None]:
        """(record, patient) of some rows."""
        patient = rows.columns.get("patient_id")
        if self.over_time:
            record = visit_ids(patient, as_days(rows.columns[DATE]), rows.columns.get("record_id"))
        else:
            record = rows.columns["record_id" if self.unit == "visit" else "patient_id"]
        return record.take(pa.array(at)), None if patient is None else patient.take(pa.array(at))


def _has_code(column: pa.StringArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(which rows have the code, which cells are counts); every distinct text is looked at once."""
    encoded = pc.dictionary_encode(pc.fill_null(column, ""))
    texts = encoded.dictionary
    number = as_numbers(texts).to_numpy(zero_copy_only=False)
    readable = (number >= 0) | ~filled(texts)
    has = number > 0
    at = encoded.indices.to_numpy()
    return has[at], readable[at]


def _is_wide(file: SourceFile) -> bool:
    names = file.plain_columns
    codes = [name for name in names if name not in (*IDS, DATE)]
    return len(codes) > 0 and len(codes) < len(names) and all(":" in name for name in codes)
