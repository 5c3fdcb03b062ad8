"""From batches of rows to CSR. Memory follows distinct ids and codes plus eight bytes for each row, never the text."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ehr.codes.rollups import ROLLUPS, rolled_up
from ehr.codes.systems import OTHER_VISIT, VISIT, ZEROS_MATTER
from ehr.errors import DataError, TooLargeError
from ehr.formats.read.protocol import Batch, Events, Kinds, Lines, Patients, Visits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import Limits
from ehr.records import Records, indptr_of
from ehr.vocabulary import Vocabulary
from model_store.datasets import positions, split_of
from worker.ingestion.called import Called
from worker.ingestion.cdm import CdmTally, Facts
from worker.ingestion.common import Mask, common_codes, distinct
from worker.ingestion.deciles import Labs
from worker.ingestion.encoded import Choices, Counted, Encoded
from worker.ingestion.numbering import EMPTY, FAULTS, Growing, Ints, Numbering
from worker.ingestion.people import People, common_bands, common_visits


class Encoder:
    record_called: ClassVar[str] = "record-id"  # in reasons why rows were left out

    def __init__(self, limits: Limits, rejects: Rejects) -> None:
        self.limits, self.rejects = limits, rejects
        self.records, self.codes, self.patients = (Numbering(limits.field_bytes) for _ in range(3))
        self._systems, self._bare = Numbering(limits.field_bytes), Numbering(limits.field_bytes)
        self._pairs: dict[int, int] = {}  # system and bare code, as one number -> code
        self._rows: list[NDArray[np.int32]] = []
        self._codes: list[NDArray[np.int32]] = []
        self._patient_of = Growing(EMPTY)
        self._has_patients = False
        self._visit_code = Growing(EMPTY)  # of records: what kind of visit they are
        self._whole: list[Ints] = []  # records that are there whatever codes they have
        self._labs, self._people, self._cdm = Labs(Numbering(limits.field_bytes)), People(), CdmTally()
        # by patients, and by records for uploads that name no patients
        self._called, self._called_in_records = Called(), Called()
        self._count = 0
        self.present: Mask = np.zeros(0, dtype=bool)  # which of `records` are there; known after `finish`

    def add(self, batch: Batch) -> None:
        """Take the usable rows of a batch and note the others."""
        if isinstance(batch, Patients):
            self._people.add(batch, self.patients)
        elif isinstance(batch, Visits):
            self._add_visits(batch)
        elif isinstance(batch, Kinds):
            self._cdm.add_kinds(batch, self.records, self.patients)
        else:
            self._add_events(batch)

    def _add_events(self, batch: Events) -> None:
        record, code = self.records.of_column(batch.record_id), self._code_numbers(batch)
        patient = None if batch.patient_id is None else self.patients.of_column(batch.patient_id)
        numbers = {self.record_called: record, "code": code, "patient-id": patient}
        usable = self._usable(batch.file, batch.lines, numbers)
        if patient is not None:
            usable = self._with_own_patient(batch.file, batch.lines, record, patient, usable)
        if batch.day is not None:
            self._people.saw(record[usable], batch.day.filter(pa.array(usable)), len(self.records))
        self._count += int(usable.sum())
        if self._count > self.limits.rows:
            raise TooLargeError(f"the upload has more than {self.limits.rows:,} rows")
        if batch.way is not None:
            self._cdm.add_rows(record[usable], code[usable], batch.way[usable])
        if batch.name is not None:
            called, who = (self._called_in_records, record) if patient is None else (self._called, patient)
            called.add(code[usable], who[usable], batch.name.filter(pa.array(usable)))
        plain = usable
        if batch.value is not None:
            measured = usable & _is_number(batch.value)
            plain = usable & ~measured
            unit = None if batch.value_unit is None else batch.value_unit.filter(pa.array(measured))
            value = batch.value.to_numpy(zero_copy_only=False)[measured].astype(np.float32)
            if len(value):
                self._labs.add(record[measured], code[measured], value, unit, self.codes)
        self._rows.append(record[plain].astype(np.int32))
        self._codes.append(code[plain].astype(np.int32))

    def _add_visits(self, batch: Visits) -> None:
        """Visits number no records but those that count: a visit without codes is no record."""
        record = self.records.of_column(batch.record_id)
        patient = None if batch.patient_id is None else self.patients.of_column(batch.patient_id)
        named = record >= 0
        if patient is not None:
            named &= patient >= 0
            self._patient_of.up_to(len(self.records))
            named = self._with_own_patient(batch.file, batch.lines, record, patient, named)
        if batch.counts:
            numbers = {self.record_called: record, "patient-id": patient}
            self._whole.append(record[named & self._usable(batch.file, batch.lines, numbers)])
        if batch.day is not None:
            self._people.began(record[named], batch.day.filter(pa.array(named)), len(self.records))
        if batch.concept is not None:
            self._visit_code.up_to(len(self.records))[record[named]] = self._visit_codes(batch.concept)[named]

    def _visit_codes(self, concept: pa.StringArray) -> Ints:
        """Numbers of the codes `VISIT:9201`; EMPTY where there is no concept."""
        concept = pc.fill_null(pc.utf8_trim_whitespace(concept), "")
        code = pc.if_else(
            pc.is_in(concept, pa.array(["", "0"])), None, pc.binary_join_element_wise(VISIT, concept, ":")
        )
        return np.maximum(self.codes.of_column(code), EMPTY)

    def _code_numbers(self, batch: Events) -> Ints:
        """Numbers of `SYSTEM:CODE`; every distinct pair is put together once."""
        if batch.vocabulary is None:
            return self.codes.of_column(batch.code)
        bare = self._bare.of_column(batch.code)
        if isinstance(batch.vocabulary, str):
            system = np.full(len(bare), self._systems.number(batch.vocabulary))
        else:
            system = self._systems.of_column(batch.vocabulary)
        pairs, inverse = np.unique((system + 4) * (1 << 32) + bare + 4, return_inverse=True)
        known = list(map(self._pairs.get, pairs.tolist()))
        if None in known:
            self._put_together(pairs.tolist(), batch.code_was_number)
            known = list(map(self._pairs.get, pairs.tolist()))
        return np.array(known, dtype=np.int64)[inverse]

    def _put_together(self, pairs: list[int], code_was_number: bool) -> None:
        systems, bares = list(self._systems.number_of), list(self._bare.number_of)
        for pair in pairs:
            if pair in self._pairs:
                continue
            s, b = pair // (1 << 32) - 4, pair % (1 << 32) - 4
            self._pairs[pair] = min(s, b) if min(s, b) < 0 else self.codes.number(f"{systems[s]}:{bares[b]}")
            if code_was_number and s >= 0 and systems[s].startswith(ZEROS_MATTER):
                raise DataError(f"{systems[s]} codes came as numbers, so leading zeros are lost; send them as text")

    def _usable(self, file: str, lines: Lines, columns: "dict[str, Ints | None]") -> Mask:
        """Rows without a fault; a row with several is counted for the first."""
        usable = np.ones(len(lines), dtype=bool)
        for name, numbers in columns.items():
            if numbers is None:
                continue
            for fault, reason in FAULTS:
                wrong = usable & (numbers == fault)
                self.rejects.add(f"{reason}-{name}", lines[wrong], file)
                usable &= ~wrong
        return usable

    def _with_own_patient(self, file: str, lines: Lines, record: Ints, patient: Ints, usable: Mask) -> Mask:
        """A record belongs to the patient it was first seen with; rows that say otherwise are left out."""
        self._has_patients = True
        owner = self._patient_of.up_to(len(self.records))
        new = np.flatnonzero(usable & (owner[record] == EMPTY))
        owner[record[new[::-1]]] = patient[new[::-1]]  # the last write wins: so write backwards
        other = usable & (owner[record] != patient)
        self.rejects.add("record-of-two-patients", lines[other], file)
        kept: Mask = usable & ~other
        return kept

    # --- when all rows are in ---

    def finish(self, choices: Choices) -> Encoded:
        """Code up labs, roll up codes, sort by record, drop repeated rows and rare codes, order the vocabulary."""
        row, code = self._plain_rows()
        present = self.present = self._present(row)
        patients = self._patients(present)
        n_patients = int(patients[present].max()) + 1
        position = positions(patients[present], n_patients)
        trains = np.zeros(len(present), dtype=bool)
        trains[present] = split_of(position, choices.test_share, choices.holdout_share) == 0
        lab_row, lab_code = self._labs.code_up(self.codes, patients, trains)
        if len(lab_row):
            row, code = np.concatenate([row, lab_row]), np.concatenate([code, lab_code])
        code, rollup = self._rolled_up(code, choices.rollup)
        about_row, about_code = self._about_records(np.flatnonzero(present), choices)
        if len(about_row):
            row, code = np.concatenate([row, about_row]), np.concatenate([code, about_code])
        called = (self._called if self._has_patients else self._called_in_records).names(list(self.codes.number_of))
        rank, names = self._ranked()
        row, code = distinct(row, rank[code], len(names))
        csr, kept, counted = self._assembled(row, code, names, rank[about_code], patients, choices)
        summary = {"rollup": rollup, "labs": self._labs.summary()}
        vocabulary, curves = Vocabulary(tuple(kept)), self._labs.curves
        return Encoded(csr, vocabulary, patients[present], n_patients, position, counted, curves, summary, called)

    def facts(self) -> Facts:
        """What the rows said beside their codes; after `finish`."""
        owner = self._patient_of.up_to(len(self.present))[: len(self.present)]
        return Facts(self._cdm, list(self.codes.number_of), owner, self.present)

    def _plain_rows(self) -> tuple[Ints, Ints]:
        columns = []
        for chunks in (self._rows, self._codes):
            columns.append(np.concatenate([*chunks, np.zeros(0, dtype=np.int32)]))
            chunks.clear()
        return columns[0], columns[1]

    def _present(self, row: Ints) -> Mask:
        """Which records are there."""
        if self._count == 0 or len(self.codes) == 0:
            why = ", ".join(f"{reason} ({each['rows']:,} rows)" for reason, each in self.rejects.summary().items())
            raise DataError(f"the upload has no usable row{f'; rejected: {why}' if why else ''}")
        present = np.zeros(len(self.records), dtype=bool)
        present[row] = True
        for whole in self._whole:
            present[whole] = True
        for measured in self._labs.records:
            present[measured] = True
        return present

    def _patients(self, present: Mask) -> Ints:
        """A patient for each record that is there, numbered from 0; without patients, each record is its own."""
        numbers = np.full(len(present), EMPTY, dtype=np.int64)
        if self._has_patients:
            owners = self._patient_of.up_to(len(present))[: len(present)][present]
            _, numbers[present] = np.unique(owners, return_inverse=True)
        else:
            numbers[present] = np.arange(int(present.sum()))
        return numbers

    def _rolled_up(self, code: Ints, name: str) -> tuple[Ints, dict[str, Any]]:
        if name == "none":
            return code, {"name": name}
        before = list(self.codes.number_of)
        seen = np.unique(code)
        becomes = np.arange(len(before), dtype=np.int64)
        for number in seen.tolist():
            becomes[number] = self.codes.number(rolled_up(before[number], ROLLUPS[name]))
        after = becomes[seen]
        counts = {"codes_before": len(seen), "codes_after": len(np.unique(after))}
        return becomes[code], {"name": name, **counts, "codes_not_rolled_up": int((after == seen).sum())}

    def _about_records(self, record: Ints, choices: Choices) -> tuple[Ints, Ints]:
        """(record, code) of what is not in their rows: sex, age band and kind of visit."""
        visit = self._visit_code.up_to(len(self.records))[record]
        visit = common_visits(visit, choices.min_records, self.codes.number(OTHER_VISIT))
        rows, codes = [record[visit != EMPTY]], [visit[visit != EMPTY]]
        owner = self._patient_of.up_to(len(self.records))[record]
        record, owner = record[owner >= 0], owner[owner >= 0]
        day = self._people.first_day.up_to(len(self.records))[record]
        for known, of_people in self._about_people(owner, day, choices):
            rows.append(record[known])
            codes.append(of_people)
        return np.concatenate(rows), np.concatenate(codes)

    def _about_people(self, owner: Ints, day: Ints, choices: Choices) -> Iterator[tuple[Mask, Ints]]:
        """(of whom it is known, codes) of sex, then of age bands on a day."""
        sexes, bands = self._people.codes(owner, day, choices.masked_age)
        for column in (sexes, common_bands(bands, choices.min_records)):
            known = np.array([name is not None for name in column], dtype=bool)
            yield known, np.array([self.codes.number(name) for name in column if name is not None], dtype=np.int64)

    def _ranked(self) -> tuple[Ints, list[str]]:
        """The place of each code in the order of their names, and the names in that order."""
        names = list(self.codes.number_of)
        order = sorted(range(len(names)), key=names.__getitem__)
        rank = np.empty(len(names), dtype=np.int64)
        rank[order] = np.arange(len(names))
        return rank, [names[i] for i in order]

    def _assembled(
        self, row: Ints, code: Ints, names: list[str], about: Ints, patients: Ints, choices: Choices
    ) -> tuple[Records, list[str], Counted]:
        """Sorted rows and codes to CSR, without rare codes; records are numbered anew. A record whose codes are all
        rare is there, without codes: leaving it out would make every other code look more common."""
        counts = np.bincount(code, minlength=len(names))
        having = counts
        if self._has_patients:
            having = np.bincount(distinct(patients[row], code, len(names))[1], minlength=len(names))
        stays, kept = common_codes(counts, having, names, choices, "records")
        dropped = int(((counts > 0) & ~stays).sum())
        rare = int(counts[~stays].sum()) - int((~stays[about]).sum())
        repeated = self._count - (len(code) - len(about))
        if dropped:
            row, code = row[stays[code]], code[stays[code]]
        sizes = np.bincount((np.cumsum(self.present) - 1)[row], minlength=int(self.present.sum()))
        place = (np.cumsum(stays) - 1).astype(np.int32)
        counted = Counted(self._count, self.rejects.rows, repeated, rare, dropped)
        return Records(indptr_of(sizes), place[code], len(kept)), kept, counted


def _is_number(value: pa.DoubleArray) -> Mask:
    """Which values are numbers that float32 can hold; nulls come as NaN, which is below nothing."""
    within: Mask = np.abs(value.to_numpy(zero_copy_only=False)) <= np.finfo(np.float32).max
    return within
