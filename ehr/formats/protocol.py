"""What a format is: a reader from files to batches of rows, writers from a stored cohort to bytes, or both.

Readers never hold a whole table: they give bounded batches, and whoever takes them (worker/ingestion) keeps numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ehr.errors import RequestError
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import Limits, SourceFile
from model_store.blobs import BlobStore

Lines = NDArray[np.int64]
Unit = Literal["visit", "patient"]


@dataclass(frozen=True)
class Options:
    """What a person may choose about reading; a reader takes what concerns it."""

    unit: Literal["auto", "visit", "patient"] = "auto"
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


@dataclass(frozen=True)
class Visits:
    """When records began, and that they are there. Only a format that carries records without codes says `counts`."""

    file: str
    lines: Lines
    record_id: pa.StringArray
    patient_id: pa.StringArray | None = None
    day: pa.Date32Array | None = None
    counts: bool = False


@dataclass(frozen=True)
class Patients:
    """Sex (`F`, `M` or null) and day of birth of patients."""

    file: str
    lines: Lines
    patient_id: pa.StringArray
    sex: pa.StringArray
    birth: pa.Date32Array


Batch = Events | Visits | Patients


@dataclass(frozen=True)
class Concept:
    """A row of an OMOP concept table, as far as a cohort needs it."""

    concept_id: int
    vocabulary_id: str
    concept_code: str


@dataclass
class CodeConcepts:
    """The concepts that stand behind a code of the upload: as recorded, and the standard one."""

    source: Concept | None = None
    standard: Concept | None = None

    @classmethod
    def of(cls, told: dict[str, Any]) -> "CodeConcepts":
        """As a dataset's manifest keeps it."""
        kept = {name: None if told.get(name) is None else Concept(**told[name]) for name in ("source", "standard")}
        return cls(**kept)


class Reader(ABC):
    """A format of uploads. An instance reads one upload, once."""

    name: ClassVar[str]
    units: ClassVar[tuple[Unit, ...]] = ("visit", "patient")  # the first is the default
    masked_age: ClassVar[int | None] = None  # from this age on, a birth was moved to hide an age over 89

    def __init__(self, files: Sequence[SourceFile], options: Options, limits: Limits) -> None:
        self.files, self.options, self.limits = files, options, limits
        self.unit: Unit = self.units[0] if options.unit == "auto" else options.unit
        if self.unit not in self.units:
            raise RequestError(f"the format {self.name} has records by {' or '.join(self.units)} only")
        self.concepts: dict[str, CodeConcepts] = {}  # filled while reading, where the upload has a concept table

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


# (store, verified manifest) -> the file, block by block: memory holds one part of the cohort, however many there are
Write = Callable[[BlobStore, dict[str, Any], dict[str, CodeConcepts]], Iterator[bytes]]


@dataclass(frozen=True)
class Writer:
    """A form in which cohorts leave the service."""

    name: str
    media_type: str
    extension: str
    write: Write
    leaves_out: str = ""  # what this form cannot carry


@dataclass(frozen=True)
class Format:
    """One file of this package: what it reads and what it writes."""

    reader: type[Reader] | None = None
    writers: tuple[Writer, ...] = field(default=())
