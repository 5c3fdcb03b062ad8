"""Data in and out as data platforms have it. A new format is one file here and one line in FORMATS."""

from collections.abc import Sequence

from ehr.errors import DataError, RequestError
from ehr.formats.protocol import Format, Options, Reader, Writer
from ehr.formats.read.archives import unpacked
from ehr.formats.read.cms_claims import CMS_CLAIMS
from ehr.formats.read.fhir import FHIR
from ehr.formats.read.long import LONG
from ehr.formats.read.meds import MEDS
from ehr.formats.read.mimic_iii import MIMIC_III
from ehr.formats.read.mimic_iv import MIMIC_IV
from ehr.formats.read.npz import NPZ
from ehr.formats.read.omop import OMOP
from ehr.formats.read.sources import Limits, SourceFile
from ehr.formats.read.synthea import SYNTHEA
from ehr.formats.read.wide import WIDE
from ehr.formats.write.arrow import ARROW
from ehr.formats.write.ndjson import NDJSON
from ehr.formats.write.parquet import PARQUET

__all__ = [
    "FORMATS",
    "READERS",
    "WRITERS",
    "Limits",
    "Options",
    "SourceFile",
    "open_upload",
    "unpacked",
    "writer_named",
]

# `auto` takes the first whose tables are there: those with the most telling columns come first
FORMATS: tuple[Format, ...] = (
    OMOP,
    MIMIC_III,
    MIMIC_IV,
    CMS_CLAIMS,
    SYNTHEA,
    FHIR,
    MEDS,
    LONG,
    WIDE,
    NPZ,
    NDJSON,
    PARQUET,
    ARROW,
)
READERS: tuple[type[Reader], ...] = tuple(format.reader for format in FORMATS if format.reader is not None)
WRITERS: tuple[Writer, ...] = tuple(writer for format in FORMATS for writer in format.writers)
AUTO = "auto"


def open_upload(name: str, files: Sequence[SourceFile], options: Options, limits: Limits) -> Reader:
    """The reader of that name, or with `auto` the first that recognises tables of its format."""
    for reader in READERS:
        if reader.name == name or (name == AUTO and reader.tables_in(files)):
            return reader(files, options, limits)
    if name == AUTO:
        raise DataError(_unrecognised(files, options, limits))
    raise RequestError(f"unknown format '{name[:40]}'; known: {AUTO}, {', '.join(r.name for r in READERS)}")


def writer_named(name: str) -> Writer:
    """The writer of that name; RequestError naming the known ones otherwise."""
    for known in WRITERS:
        if known.name == name:
            return known
    raise RequestError(f"unknown format '{name[:40]}'; known: {', '.join(known.name for known in WRITERS)}")


def _unrecognised(files: Sequence[SourceFile], options: Options, limits: Limits) -> str:
    """A file with a table's name and other columns is told apart from one that nobody knows."""
    unit_free = Options(default_vocabulary=options.default_vocabulary)
    for reader in READERS:
        if "has no column" in (told := reader(files, unit_free, limits).explain()):
            return f"by its name this is {reader.name}, but {told}"
    known = ", ".join(reader.name for reader in READERS)
    return (
        "the format was not recognised: no file has the name or the columns of a known table. A long table's first line"
        f" names record_id and code. Known formats: {known}"
    )
