"""From batches of rows to histories: visits under their patients, and what is true of a patient at every visit."""

from collections.abc import Sequence

import numpy as np

from ehr.codes.systems import ABOUT_PATIENTS, OTHER_VISIT, VISIT, split_code
from ehr.disclosure import shown
from ehr.formats.read.protocol import Visits
from ehr.histories import Histories
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from model_store.datasets import positions, split_of
from worker.ingestion.common import Mask, common_codes, distinct
from worker.ingestion.encode import Encoder
from worker.ingestion.encoded import Choices, Counted, Encoded
from worker.ingestion.numbering import EMPTY, Ints
from worker.ingestion.people import common_visits
from worker.ingestion.timeline import NOWHERE, Timeline, timeline

# Of several kinds on one day the first of these counts, then the smallest number: a stay began in the emergency room.
STRONGEST = (f"{VISIT}:9201", f"{VISIT}:9203")


class HistoryEncoder(Encoder):
    """Its records are visits. Codes of who a patient is belong to the patient, whichever visit's rows have them."""

    record_called = "visit-id-or-date"

    def _add_visits(self, batch: Visits) -> None:
        """A visit whose kind is known is there without other codes: its kind is one."""
        super()._add_visits(batch)
        if batch.concept is not None:
            record = self.records.of_column(batch.record_id)
            record = record[record >= 0]
            self._whole.append(record[self._visit_code.up_to(len(self.records))[record] != EMPTY])

    def finish(self, choices: Choices) -> Encoded:
        row, code = self._plain_rows()
        self.present = self._present(row)
        line = self._timeline(choices)
        self.present &= line.place != NOWHERE
        position = positions(np.arange(len(line.owners)), len(line.owners))
        of_visit = np.repeat(np.arange(len(line.owners)), np.diff(line.offsets))  # (V,), patients from 0
        patients = np.where(self.present, of_visit[line.place], EMPTY)
        trains = self.present.copy()
        trains[self.present] = (split_of(position, choices.test_share, choices.holdout_share) == 0)[patients[trains]]
        lab_row, lab_code = self._labs.code_up(self.codes, patients, trains)
        row, code = np.concatenate([row, lab_row]), np.concatenate([code, lab_code])
        code, rollup = self._rolled_up(code, choices.rollup)
        there = self.present[row]
        left_out = int((~there).sum())
        row, code = row[there], code[there]
        plain = ~self._of_systems(code, (*ABOUT_PATIENTS, VISIT))
        about = self._static(row, code, patients, line, choices)
        kinds = self._kinds(row, code, line, choices)
        visits = [(line.place[row[plain]], code[plain]), kinds]
        called = self._called.names(list(self.codes.number_of))
        counted_elsewhere = left_out + int((~plain).sum())
        histories, kept, counted = self._histories(visits, about, line, counted_elsewhere, choices)
        vocabulary, curves = Vocabulary(tuple(kept)), self._labs.curves
        summary = {"rollup": rollup, "labs": self._labs.summary()}
        summary["history_rules"] = {rule: shown(count) for rule, count in line.counts.items()}
        summary["history_rules"]["most_visits"] = choices.max_visits
        n_patients, of_visits = len(histories), position[of_visit]
        return Encoded(
            histories.visits, vocabulary, of_visit, n_patients, of_visits, counted, curves, summary, called, histories
        )

    def _timeline(self, choices: Choices) -> Timeline:
        n = len(self.records)
        owner, death = self._patient_of.up_to(n)[:n], self._people.death.up_to(len(self.patients))
        return timeline(self.present, owner, self._people.days(n), death, choices.max_visits)

    def _of_systems(self, code: Ints, systems: Sequence[str]) -> Mask:
        """Which codes are of one of the systems."""
        known = np.array([split_code(name)[0] in systems for name in self.codes.number_of], dtype=bool)
        return known[code]

    def _static(self, row: Ints, code: Ints, patients: Ints, line: Timeline, choices: Choices) -> tuple[Ints, Ints]:
        """(patient, code) of sex, age band at the first visit and years of birth: as a table of patients has them, else
        as the rows of the earliest visit that has any."""
        owners, codes = [], []
        first_days = line.days[line.offsets[:-1]]
        said = (*self._about_people(line.owners, first_days, choices), self._births(line.owners, first_days, choices))
        for system, (known, of_people) in zip(ABOUT_PATIENTS, said, strict=True):
            owners.append(np.flatnonzero(known))
            codes.append(of_people)
            mine = self._of_systems(code, (system,)) & ~known[patients[row]]
            order = np.lexsort((code[mine], line.place[row[mine]]))
            whose, first = np.unique(patients[row[mine]][order], return_index=True)
            owners.append(whose)
            codes.append(code[mine][order][first])
        return np.concatenate(owners), np.concatenate(codes)

    def _births(self, owner: Ints, day: Ints, choices: Choices) -> tuple[Mask, Ints]:
        """(of whom it is known, codes) of years of birth; of nobody unless they are asked for."""
        bands = self._people.birth_bands(owner, day, choices.masked_age) if choices.birth_years else [None] * len(owner)
        known = np.array([band is not None for band in bands], dtype=bool)
        return known, np.array([self.codes.number(band) for band in bands if band is not None], dtype=np.int64)

    def _kinds(self, row: Ints, code: Ints, line: Timeline, choices: Choices) -> tuple[Ints, Ints]:
        """(visit, code) of the kind of each visit; none if nothing says any."""
        n = len(self.records)
        own = self._visit_code.up_to(n)[:n]
        mine = self._of_systems(code, (VISIT,))
        stated = np.flatnonzero(self.present & (own != EMPTY))
        places = np.concatenate([line.place[stated], line.place[row[mine]]])
        codes = np.concatenate([own[stated], code[mine]])
        names = list(self.codes.number_of)
        rank = {name: place for place, name in enumerate(dict.fromkeys((*STRONGEST, *sorted(names))))}
        strength = np.array([rank[names[each]] for each in codes.tolist()], dtype=np.int64)
        order = np.lexsort((strength, places))
        visits, first = np.unique(places[order], return_index=True)
        kind = np.full(len(line.days), EMPTY, dtype=np.int64)
        kind[visits] = codes[order][first]
        kind = common_visits(kind, choices.min_records, self.codes.number(OTHER_VISIT))
        known = np.flatnonzero(kind != EMPTY)
        return known, kind[known]

    def _histories(
        self,
        visits: Sequence[tuple[Ints, Ints]],
        static: tuple[Ints, Ints],
        line: Timeline,
        counted_elsewhere: int,
        choices: Choices,
    ) -> tuple[Histories, list[str], Counted]:
        """Without the codes that too few patients have. A visit whose codes are all rare is there, without codes."""
        rank, names = self._ranked()
        row, code = distinct(
            np.concatenate([rows for rows, _ in visits]),
            rank[np.concatenate([codes for _, codes in visits])],
            len(names),
        )
        owner, about = distinct(static[0], rank[static[1]], len(names)) if len(static[0]) else static
        of_visit = np.repeat(np.arange(len(line.owners)), np.diff(line.offsets))
        _, having = distinct(np.concatenate([of_visit[row], owner]), np.concatenate([code, about]), len(names))
        counts = np.bincount(having, minlength=len(names))
        stays, kept = common_codes(counts, counts, names, choices, "patients")
        rows_kept = len(row) - len(visits[-1][0])
        rare = int((~stays[code]).sum())
        place = np.cumsum(stays) - 1

        def records(rows: Ints, codes: Ints, n: int) -> Records:
            return Records.from_pairs(rows[stays[codes]], place[codes[stays[codes]]], n, len(kept))

        histories = Histories(
            records(row, code, len(line.days)), line.offsets, line.gaps(), records(owner, about, len(line.owners))
        )
        dropped = int(((counts > 0) & ~stays).sum())
        repeated = self._count - counted_elsewhere - rows_kept
        return histories, kept, Counted(self._count, self.rejects.rows, repeated, rare, dropped)
