"""From rows of text to CSR. Memory follows distinct ids and codes plus eight bytes for each row, never the text."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from model_store.datasets import Csr
from model_store.errors import DataError, TooLargeError
from model_store.vocabulary import Vocabulary
from worker.ingestion.rejects import Rejects
from worker.ingestion.source import Batch, Limits

EMPTY, TOO_LONG = -1, -2
Ints = NDArray[np.int64]


@dataclass
class Numbering:
    """Text to numbers, in order of appearance."""

    longest: int
    number_of: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.number_of)

    def number(self, text: str | None) -> int:
        """The number of a text without its padding; EMPTY or TOO_LONG if it is none."""
        stripped = "" if text is None else text.strip()
        if stripped == "":
            return EMPTY
        if len(stripped) > self.longest or len(stripped.encode()) > self.longest:
            return TOO_LONG
        return self.number_of.setdefault(stripped, len(self.number_of))

    def of_column(self, column: pa.StringArray) -> Ints:
        """A number for each row; every distinct text is looked at once."""
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        numbers = np.fromiter((self.number(text) for text in encoded.dictionary.to_pylist()), dtype=np.int64)
        return numbers[encoded.indices.to_numpy()] if len(encoded) else np.zeros(0, dtype=np.int64)


class Encoder:
    """Takes batches, gives records."""

    def __init__(self, limits: Limits, default_vocabulary: str | None, rejects: Rejects) -> None:
        self.limits, self.default_vocabulary, self.rejects = limits, default_vocabulary, rejects
        self.records, self.codes, self.patients = (Numbering(limits.field_bytes) for _ in range(3))
        self._systems, self._bare = Numbering(limits.field_bytes), Numbering(limits.field_bytes)
        self._rows: list[NDArray[np.int32]] = []
        self._codes: list[NDArray[np.int32]] = []
        self._patient_of = np.full(1024, EMPTY, dtype=np.int64)  # of each record; grows
        self._has_patients = False
        self._count = 0

    def add(self, batch: Batch) -> None:
        """Take the usable rows of a batch and note the others."""
        lines = np.arange(batch.first_line, batch.first_line + len(batch.columns["code"]))
        record = self.records.of_column(batch.columns["record_id"])
        code = self._code_numbers(batch)
        patient = self.patients.of_column(batch.columns["patient_id"]) if "patient_id" in batch.columns else None
        usable = self._usable(lines, {"record_id": record, "code": code, "patient_id": patient})
        if patient is not None:
            usable = self._with_own_patient(lines, record, patient, usable)
        self._rows.append(record[usable].astype(np.int32))
        self._codes.append(code[usable].astype(np.int32))
        self._count += int(usable.sum())
        if self._count > self.limits.rows:
            raise TooLargeError(f"the upload has more than {self.limits.rows:,} rows")

    def _code_numbers(self, batch: Batch) -> Ints:
        """Numbers of `SYSTEM:CODE`; every distinct pair is put together once."""
        if "vocabulary" not in batch.columns and self.default_vocabulary is None:
            return self.codes.of_column(batch.columns["code"])
        bare = self._bare.of_column(batch.columns["code"])
        if "vocabulary" not in batch.columns:
            system = np.full(len(bare), self._systems.number(self.default_vocabulary))
        else:
            system = self._systems.of_column(batch.columns["vocabulary"])
        pairs, inverse = np.unique((system + 2) * (1 << 32) + bare + 2, return_inverse=True)
        systems, bares = list(self._systems.number_of), list(self._bare.number_of)
        numbers = np.empty(len(pairs), dtype=np.int64)
        for i, pair in enumerate(pairs.tolist()):
            s, b = pair // (1 << 32) - 2, pair % (1 << 32) - 2
            numbers[i] = min(s, b) if min(s, b) < 0 else self.codes.number(f"{systems[s]}:{bares[b]}")
        return numbers[inverse]

    def _usable(self, lines: Ints, columns: "dict[str, Ints | None]") -> NDArray[np.bool_]:
        """Rows without a fault; a row with several is counted for the first."""
        usable = np.ones(len(lines), dtype=bool)
        for name, numbers in columns.items():
            if numbers is None:
                continue
            for fault, reason in ((EMPTY, "empty"), (TOO_LONG, "too-long")):
                wrong = usable & (numbers == fault)
                self.rejects.add(f"{reason}-{name.replace('_', '-')}", lines[wrong])
                usable &= ~wrong
        return usable

    def _with_own_patient(
        self, lines: Ints, record: Ints, patient: Ints, usable: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """A record belongs to the patient it was first seen with; rows that say otherwise are left out."""
        self._has_patients = True
        while len(self._patient_of) < len(self.records):
            self._patient_of = np.concatenate([self._patient_of, np.full_like(self._patient_of, EMPTY)])
        new = np.flatnonzero(usable & (self._patient_of[record] == EMPTY))
        self._patient_of[record[new[::-1]]] = patient[new[::-1]]  # the last write wins: so write backwards
        other = usable & (self._patient_of[record] != patient)
        self.rejects.add("record-of-two-patients", lines[other])
        kept: NDArray[np.bool_] = usable & ~other
        return kept

    def finish(self, min_records: int, max_codes: int) -> "Encoded":
        """Sort by record, drop repeated rows and rare codes, order the vocabulary."""
        n_codes = len(self.codes)
        if self._count == 0 or n_codes == 0:
            raise DataError("the upload has no usable row")
        key = np.concatenate(self._rows).astype(np.int64)
        self._rows.clear()
        key *= n_codes
        key += np.concatenate(self._codes)
        self._codes.clear()
        key.sort()
        key = key[np.concatenate([[True], key[1:] != key[:-1]])]
        row, code = np.divmod(key, n_codes)
        del key
        kept, position = self._kept_codes(np.bincount(code, minlength=n_codes), min_records, max_codes)
        # A record whose rows were all rejected was numbered but is not there; one whose codes are all rare is, without
        # codes: leaving it out would make every other code look more common.
        present = np.zeros(len(self.records), dtype=bool)
        present[row] = True
        stays = position[code] >= 0
        row, code = row[stays], position[code[stays]]
        return self._assembled(row, code, present, kept, n_codes)

    def _kept_codes(self, counts: Ints, min_records: int, max_codes: int) -> tuple[list[str], Ints]:
        names = list(self.codes.number_of)
        kept = sorted(names[i] for i in np.flatnonzero(counts >= min_records))
        if not kept:
            raise DataError(f"no code is in at least {min_records} records")
        if len(kept) > max_codes:
            raise TooLargeError(f"{len(kept):,} codes are more than the {max_codes:,} allowed; raise min_records")
        position = np.full(len(names), -1, dtype=np.int64)
        for i, name in enumerate(kept):
            position[self.codes.number_of[name]] = i
        return kept, position

    def _assembled(self, row: Ints, code: Ints, present: NDArray[np.bool_], kept: list[str], n_codes: int) -> "Encoded":
        """Rows and codes to CSR; records are numbered anew and their codes sorted."""
        new_row = np.cumsum(present) - 1
        n = int(present.sum())
        order = np.argsort(
            new_row[row] * len(kept) + code
        )  # positions in the vocabulary are not in order of appearance
        indptr = np.zeros(n + 1, dtype=np.int64)
        np.cumsum(np.bincount(new_row[row], minlength=n), out=indptr[1:])
        records = Csr(indptr, code[order].astype(np.int32), len(kept))
        if self._has_patients:
            _, patients = np.unique(self._patient_of[: len(present)][present], return_inverse=True)
        else:
            patients = np.arange(n)
        return Encoded(records, Vocabulary(tuple(kept)), patients.astype(np.int64), n_codes - len(kept))


@dataclass(frozen=True)
class Encoded:
    """Records, their codes, and whose they are."""

    records: Csr
    vocabulary: Vocabulary
    patients: Ints  # (R,), from 0
    codes_dropped: int

    @property
    def n_patients(self) -> int:
        return int(self.patients.max()) + 1 if len(self.patients) else 0
