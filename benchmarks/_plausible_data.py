"""The data that benchmarks.plausible looks at: simulated, as two long tables, as dated visits, or as an upload."""

import csv
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._harness import load_long, subset
from benchmarks._omop_round_trip import cohort_of, read
from ehr.codes.systems import age_band
from ehr.formats.write.protocol import CohortSource
from ehr.groups import find_groups
from ehr.records import Records
from ehr.rules import Rules
from worker.engine.population import simulated_population
from worker.ingestion.rules import find_rules

QUICK = 3_000


@dataclass(frozen=True)
class Data:
    """Real records, their rules, and how to write a cohort of theirs, where they came as an upload."""

    train: Records
    test: Records
    codes: Sequence[str]
    rules: Rules
    folder: Path | None = None
    written: Callable[[Records], CohortSource] | None = None

    @classmethod
    def of(cls, train: Records, test: Records, codes: Sequence[str], **more: Any) -> "Data":
        return cls(train, test, codes, find_rules(train, codes, find_groups(train, codes)), **more)


def data_in(folder: Path | None, quick: bool) -> Data:
    """What is in a folder, or the simulated population; a part of it to be quick."""
    if folder is None:
        population = simulated_population()
        train, test = (population.sample(n, np.random.default_rng(seed)) for n, seed in ((20_000, 0), (25_000, 1)))
        codes: Sequence[str] = population.vocabulary
    elif not (folder / "train.csv.gz").exists():
        return _uploaded(folder, quick)
    elif _header(folder)[:1] == ["patient_id"]:
        train, test, codes = _visits(folder)
    else:
        train, test, codes = load_long(folder)
    return Data.of(subset(train, QUICK), subset(test, QUICK), codes) if quick else Data.of(train, test, codes)


def _uploaded(folder: Path, quick: bool) -> Data:
    """The files of an upload, a tenth of whose patients are for testing."""
    encoded, cdm, concepts = read(folder)
    unseen = encoded.position < 0.1
    train, test = (encoded.records.take(np.flatnonzero(rows)) for rows in (~unseen, unseen))
    train, test = (subset(train, QUICK), subset(test, QUICK)) if quick else (train, test)

    def written(records: Records) -> CohortSource:
        return cohort_of(records, encoded, cdm, concepts)

    return Data.of(train, test, encoded.vocabulary.codes, folder=folder, written=written)


def _header(folder: Path) -> list[str]:
    with gzip.open(folder / "train.csv.gz", "rt", newline="") as file:
        return next(csv.reader(file))


def _visits(folder: Path) -> tuple[Records, Records, Sequence[str]]:
    """Dated visits with sex and year of birth as records with a sex and an age band."""
    tables: list[dict[tuple[str, str], set[str]]] = []
    for name in ("train", "test"):
        visits: dict[tuple[str, str], set[str]] = {}
        with gzip.open(folder / f"{name}.csv.gz", "rt", newline="") as file:
            for row in csv.DictReader(file):
                visit = visits.setdefault((row["patient_id"], row["date"]), set())
                age = max(int(row["date"][:4]) - int(row["birth_year"]), 0)
                visit |= {f"{row['vocabulary']}:{row['code']}", f"SEX:{row['sex']}", age_band(age)}
        tables.append(visits)
    codes = sorted({code for visits in tables for visit in visits.values() for code in visit})
    place = {code: number for number, code in enumerate(codes)}
    train, test = (
        Records.from_sets(([place[code] for code in visit] for visit in visits.values()), len(codes))
        for visits in tables
    )
    return train, test, codes
