"""What a writer is: from a cohort to the bytes of a file, and what it may ask of the cohort."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ehr.codes.names import name_of
from ehr.formats.cdm import SourceCdm
from ehr.formats.concepts import CodeConcepts
from ehr.labs import LabCurve
from ehr.records import Records

Ints = NDArray[np.int64]
BLOCK_RECORDS = 1 << 14


class Block(NamedTuple):
    """Consecutive records of a cohort; record i of the block is number `first_record + i`."""

    first_record: int
    records: Records

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
    n_records: int  # numbered from 0
    blocks: Callable[[], Iterator[Block]]  # all of them, in order; formats with several tables ask for each table
    count_codes: Callable[[], int]  # in all records together
    manifest: Mapping[str, Any] = field(default_factory=dict)  # how the cohort was made, as JSON
    concepts: Mapping[str, CodeConcepts] = field(default_factory=dict)  # of codes, as the upload gave them
    cdm: Callable[[], SourceCdm | None] = lambda: None  # what is known of the CDM the records were learned from
    seed: int = 0  # of what a format must have and records do not say
    lab_curves: Mapping[str, LabCurve] = field(default_factory=dict)  # of labs that became deciles
    names: Mapping[str, str] = field(default_factory=dict)  # of codes, as the cohort's manifest keeps them
    with_names: bool = False  # rows are wanted with the names of their codes

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
