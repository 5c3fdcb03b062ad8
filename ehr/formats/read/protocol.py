"""What a reader is: from the files of an upload to batches of rows.

Readers never hold a whole table: they give bounded batches, and whoever takes them (worker/ingestion) keeps numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ehr.errors import RequestError
from ehr.formats.cdm import EHR, Kind, Row, Visit
from ehr.formats.concepts import CodeConcepts, Concept
from ehr.formats.read.lab_units import LabUnits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile

Lines = NDArray[np.int64]
Unit = Literal["visit", "patient", "history"]
KindName = Literal["people", "visits", "periods"]


@dataclass(frozen=True)
class Options:
    """What a person may choose about reading; a reader takes what concerns it."""

    unit: Literal["auto", "visit", "patient", "history"] = "auto"
    codes_from: Literal["source", "concept"] = "source"
    default_vocabulary: str | None = None
    demographics: bool = True


@dataclass(frozen=True)
class Events:
    """Rows that each give a record a code. `value` makes the code a lab, whose deciles are learned later."""

    file: str
    lines: Lines
    record_id: pa.StringArray
    code: pa.StringArray
    vocabulary: pa.StringArray | str | None = None  # one for each row, one for all, or within the code itself
    patient_id: pa.StringArray | None = None
    value: pa.DoubleArray | None = None
    day: pa.Date32Array | None = None
    code_was_number: bool = False
    way: NDArray[np.int64] | None = None  # how each row stands in the upload's CDM: positions in the reader's `ways`
    value_unit: pa.StringArray | None = None
    name: pa.StringArray | None = None  # what the row calls its code


@dataclass(frozen=True)
class Visits:
    """When records began, what kind of visit they are, and that they are there. Only a format that carries records
    without codes says `counts`."""

    file: str
    lines: Lines
    record_id: pa.StringArray
    patient_id: pa.StringArray | None = None
    day: pa.Date32Array | None = None
    counts: bool = False
    concept: pa.StringArray | None = None  # id of a visit concept; empty, 0 or null where there is none


@dataclass(frozen=True)
class Patients:
    """Sex (`F`, `M` or null), day of birth and day of death of patients."""

    file: str
    lines: Lines
    patient_id: pa.StringArray
    sex: pa.StringArray
    birth: pa.Date32Array
    death: pa.Date32Array | None = None


@dataclass(frozen=True)
class Kinds:
    """Of which kind people, visits or observation periods are: positions in the reader's `kinds[of]`."""

    of: KindName
    whose: pa.StringArray  # ids of records for visits, of patients for the others
    kind: NDArray[np.int64]


Batch = Events | Visits | Patients | Kinds


class Reader(ABC):
    """A format of uploads. An instance reads one upload, once."""

    name: ClassVar[str]
    generality: ClassVar[int] = 1  # `auto` tries formats with distinctive tables (0) first, of any table (2) last
    units: ClassVar[tuple[Unit, ...]] = ("visit", "patient", "history")  # the first is the default
    masked_age: ClassVar[int | None] = None  # from this age on, a birth was moved to hide an age over 89
    visits: ClassVar[Visit] = Visit(type=EHR)  # what all visits of the format are, unless the upload says more

    def __init__(self, files: Sequence[SourceFile], options: Options) -> None:
        self.files, self.options = files, options
        self.unit: Unit = self.units[0] if options.unit == "auto" else options.unit
        if self.unit not in self.units:
            raise RequestError(f"the format {self.name} has records by {' or '.join(self.units)} only")
        self.over_time = self.unit == "history"
        self.by: Literal["visit", "patient"] = "patient" if self.unit == "patient" else "visit"  # of a record
        # filled while reading, where the upload is a CDM or says at least which table a code belongs in
        self.concepts: dict[str, CodeConcepts] = {}  # of codes, where there is a concept table
        self.ways: list[Row] = []
        self.kinds: Mapping[KindName, Sequence[Kind]] = {}
        self.described: dict[int, Concept] = {}  # by id: all that were met and are in the concept table
        self.lab_units = LabUnits()  # by their name in `value_unit`, where the upload tells more of them
        self.names: dict[str, str] = {}  # of codes, filled while reading, where the upload has a table of them

    def remember_names(
        self, code: pa.StringArray, name: pa.StringArray, system: pa.StringArray | str | None = None
    ) -> None:
        """Keep the names that a table of codes gives them; the first of a code counts."""
        code = pc.utf8_trim_whitespace(code)
        codes = code if system is None else pc.binary_join_element_wise(system, code, ":")
        for one, text in zip(codes.to_pylist(), name.to_pylist(), strict=True):
            if one and text and text.strip():
                self.names.setdefault(one, text)

    @classmethod
    @abstractmethod
    def tables_in(cls, files: Sequence[SourceFile]) -> dict[int, str]:
        """Which files (by position) are tables of this format, and which; none if it is not this format."""

    @abstractmethod
    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        """The rows, in order. DataError (without quoting the file) if they cannot be read."""

    def explain(self) -> str:
        """What this format looks for, for when it finds nothing."""
        return f"no file of the upload is a table of the format {self.name}"
