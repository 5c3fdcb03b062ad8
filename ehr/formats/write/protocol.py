"""What a writer is: from a cohort to the bytes of a file, and what it may ask of the cohort."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ehr.codes.names import name_of
from ehr.formats.cdm import SourceCdm
from ehr.formats.concepts import CodeConcepts
from ehr.formats.write.dates import FIRST_DAY, SYNTHETIC_DATES, Day, Days, dates_of_histories, days_of
from ehr.histories import Histories
from ehr.labs import LabCurve
from ehr.records import Records

Ints = NDArray[np.int64]
BLOCK_RECORDS = 1 << 14


class Block(NamedTuple):
    """Consecutive records of a cohort; record i of the block is number `first_record + i`.

    In histories a record is a visit, a patient's visits stand in one block, and the first has the static codes.
    """

    first_record: int
    records: Records
    patients: Ints | None = None  # (R,), whose visit each record is; None where everyone has one record
    days: Days | None = None  # (R,), of visits

    @classmethod
    def of_histories(cls, first_visit: int, first_patient: int, histories: Histories, origin: Day) -> "Block":
        """Patients whose first visits are all on the day `origin`."""
        firsts = histories.offsets[:-1]
        rows = np.concatenate([histories.visits.rows(), firsts[histories.static.rows()]])
        codes = np.concatenate([histories.visits.indices, histories.static.indices])
        records = Records.from_pairs(rows, codes, len(histories.visits), histories.n_codes)
        days = origin + histories.days().astype("timedelta64[D]")
        return cls(first_visit, records, histories.patients() + first_patient, days)

    def people(self) -> Ints:
        """The number of each record's patient, (R,)."""
        return self.numbers() if self.patients is None else self.patients

    def firsts(self) -> Ints:
        """Which records are the first of their patient."""
        people = self.people()
        return np.flatnonzero(np.diff(people, prepend=-1) != 0)

    def dates(self) -> Days:
        """The day of each record, the same in every format."""
        return days_of(self.numbers()) if self.days is None else self.days

    def numbers(self) -> Ints:
        """Of the records, (R,)."""
        return np.arange(self.first_record, self.first_record + len(self.records))

    def rows(self) -> tuple[Ints, Ints]:
        """(record within the block, code) of every code."""
        return self.records.rows(), self.records.indices.astype(np.int64)


@dataclass(frozen=True)
class CohortSource:
    """A cohort to be written. Memory holds one block of it at a time, however many there are."""

    vocabulary: tuple[str, ...]
    n_records: int  # numbered from 0; of histories: patients
    blocks: Callable[[], Iterator[Block]]  # all of them, in order; formats with several tables ask for each table
    count_codes: Callable[[], int]  # in all records together
    manifest: Mapping[str, Any] = field(default_factory=dict)  # how the cohort was made, as JSON
    concepts: Mapping[str, CodeConcepts] = field(default_factory=dict)  # of codes, as the upload gave them
    cdm: Callable[[], SourceCdm | None] = lambda: None  # what is known of the CDM the records were learned from
    seed: int = 0  # of what a format must have and records do not say
    lab_curves: Mapping[str, LabCurve] = field(default_factory=dict)  # of labs that became deciles
    names: Mapping[str, str] = field(default_factory=dict)  # of codes, as the cohort's manifest keeps them
    with_names: bool = False  # rows are wanted with the names of their codes
    origin: Day | None = None  # the day of all first visits, if the cohort has histories

    @property
    def first_year(self) -> int:
        """In which everyone has the age that the first record says."""
        return int((FIRST_DAY if self.origin is None else self.origin).astype("datetime64[Y]").astype(int)) + 1970

    @property
    def about_dates(self) -> str:
        """What a file says of its dates."""
        return SYNTHETIC_DATES if self.origin is None else dates_of_histories(self.origin)

    def name_of(self, code: str) -> str | None:
        return name_of(code, self.names)

    def numbers(self) -> Iterator[Ints]:
        """The numbers of the records, some at a time, for tables that do not need their codes."""
        for first in range(0, self.n_records, BLOCK_RECORDS):
            yield np.arange(first, min(first + BLOCK_RECORDS, self.n_records))


@dataclass(frozen=True)
class Writer:
    """A form in which cohorts leave the service."""

    name: str
    media_type: str
    extension: str
    write: Callable[[CohortSource], Iterator[bytes]]
    leaves_out: str = ""  # what this form cannot carry
    has_names: bool = True  # whether there is a place for names of codes
    by_ranges: bool = False  # whether readers jump about in it: its end says where things are
    has_time: bool = True  # whether histories can be told from it
