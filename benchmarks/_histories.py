"""Patients over time for benchmarks: the simulated population, dated visits in long tables, or files of an upload."""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks._omop_round_trip import LIMITS
from ehr.errors import DataError
from ehr.formats import Options, SourceFile, open_upload, unpacked
from ehr.formats.read.rejects import Rejects
from ehr.groups import Groups, find_groups
from ehr.histories import Histories
from ehr.records import Records, indptr_of
from ehr.rules import Rules
from ehr.vocabulary import Vocabulary
from worker.engine.population import simulate_histories
from worker.ingestion.encoded import Choices
from worker.ingestion.history_encoder import HistoryEncoder
from worker.ingestion.rules import find_rules

HELD_OUT = 0.05  # of the training patients
TESTED = 0.2  # of the patients of an upload


@dataclass(frozen=True)
class Patients:
    """Patients to learn from, to stop early by, and to be judged by; nobody is in two of them."""

    train: Histories
    holdout: Histories
    test: Histories
    vocabulary: Vocabulary
    simulated: bool

    @cached_property
    def visit_groups(self) -> Groups:
        return find_groups(self.train.visits, self.vocabulary.codes)

    @cached_property
    def static_groups(self) -> Groups:
        return find_groups(self.train.static, self.vocabulary.codes)

    @cached_property
    def rules(self) -> Rules:
        """Of visits with what is true of their patient, as ingestion finds them."""
        whole = self.train.visits_with_static()
        return find_rules(whole, self.vocabulary.codes, find_groups(whole, self.vocabulary.codes))


def patients_in(folder: Path | None, most: int | None, visits: int | None = None) -> Patients:
    """Those of a folder with train.csv.gz and test.csv.gz, of a folder of files that could be uploaded, or simulated
    ones; at most so many to learn from, and of each at most the first so many `visits`."""
    if folder is None:
        train, vocabulary = simulate_histories(most or 10_000, 0)
        test, _ = simulate_histories(min(most or 5_000, 5_000), 1)
    else:
        load = load_visits if (folder / "train.csv.gz").exists() else load_upload
        train, test, vocabulary = load(folder)
        train = train.take(np.arange(min(most or len(train), len(train))))
        test = test.take(np.arange(min(most or len(test), len(test))))
    if visits is not None:
        train, test = _first(train, visits), _first(test, visits)
    order = np.random.default_rng(0).permutation(len(train))
    holdout, learn = np.split(order, [max(int(HELD_OUT * len(order)), 20)])
    return Patients(train.take(learn), train.take(holdout), test, vocabulary, folder is None)


def _first(histories: Histories, most: int) -> Histories:
    """The first visits of each patient, at most so many."""
    number = np.arange(len(histories.visits)) - histories.offsets[histories.patients()]
    rows = np.flatnonzero(number < most)
    counts = np.minimum(histories.visit_counts(), most)
    return Histories(histories.visits.take(rows), indptr_of(counts), histories.gaps[rows], histories.static)


def load_visits(folder: Path) -> tuple[Histories, Histories, Vocabulary]:
    """(train, test, vocabulary) from long tables: patient_id, date, vocabulary, code, sex, birth_year."""
    rows = {name: list(_rows(folder / f"{name}.csv.gz")) for name in ("train", "test")}
    codes = sorted({code for table in rows.values() for *_, code, _ in table})
    statics = sorted({code for table in rows.values() for *_, static in table for code in static})
    vocabulary = Vocabulary((*statics, *codes))
    train, test = (_histories(table, vocabulary) for table in rows.values())
    return train, test, vocabulary


def load_upload(folder: Path) -> tuple[Histories, Histories, Vocabulary]:
    """(train, test, vocabulary) from the files of an upload, as the service would read them with unit=history."""
    files = unpacked([SourceFile.at(path, path.name, LIMITS) for path in sorted(folder.iterdir())])
    reader, rejects = open_upload("auto", files, Options(unit="history")), Rejects()
    encoder = HistoryEncoder(LIMITS, rejects)
    for batch in reader.batches(rejects):
        encoder.add(batch)
    encoded = encoder.finish(Choices(masked_age=reader.masked_age))
    histories = encoded.histories
    if histories is None:
        raise DataError(f"{folder} has no dates")
    tested = encoded.position[histories.offsets[:-1]] < TESTED
    train, test = (histories.take(np.flatnonzero(patients)) for patients in (~tested, tested))
    return train, test, encoded.vocabulary


def _rows(path: Path) -> Iterator[tuple[str, date, str, tuple[str, ...]]]:
    """(patient, date, code, static codes: sex and decade of birth)."""
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            static = f"SEX:{row['sex']}", f"BORN:{row['birth_year'][:3]}0s"
            yield row["patient_id"], date.fromisoformat(row["date"]), f"{row['vocabulary']}:{row['code']}", static


def _histories(rows: list[tuple[str, date, str, tuple[str, ...]]], vocabulary: Vocabulary) -> Histories:
    place = vocabulary.positions
    visits = sorted({(patient, day) for patient, day, *_ in rows})
    number = {visit: row for row, visit in enumerate(visits)}
    patients = list(dict.fromkeys(patient for patient, _ in visits))
    static = {patient: [place[code] for code in each] for patient, *_, each in rows}
    days = np.array([day.toordinal() for _, day in visits])
    counts = np.unique([patient for patient, _ in visits], return_counts=True)[1]
    offsets = indptr_of(counts)
    gaps = np.diff(days, prepend=days[0])
    gaps[offsets[:-1]] = 0
    return Histories(
        Records.from_pairs(
            [number[patient, day] for patient, day, *_ in rows],
            [place[code] for *_, code, _ in rows],
            len(visits),
            len(vocabulary),
        ),
        offsets,
        gaps.astype(np.int32),
        Records.from_sets([static[patient] for patient in patients], len(vocabulary)),
    )
