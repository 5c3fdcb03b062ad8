"""Data in and out as data platforms have it. A new format is one file here and one line in FORMATS."""

from collections.abc import Sequence

from model_store.errors import DataError, RequestError
from model_store.formats.archives import unpacked
from model_store.formats.arrow import ARROW
from model_store.formats.cms_claims import CMS_CLAIMS
from model_store.formats.fhir import FHIR
from model_store.formats.long import LONG
from model_store.formats.meds import MEDS
from model_store.formats.mimic_iii import MIMIC_III
from model_store.formats.mimic_iv import MIMIC_IV
from model_store.formats.ndjson import NDJSON
from model_store.formats.npz import NPZ
from model_store.formats.omop import OMOP
from model_store.formats.parquet import PARQUET
from model_store.formats.protocol import Format, Options, Reader, Writer
from model_store.formats.sources import Limits, SourceFile
from model_store.formats.synthea import SYNTHEA
from model_store.formats.wide import WIDE

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
