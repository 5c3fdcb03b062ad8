"""Uploads as data platforms have them. A new format is one file here and one line in READERS."""

from collections.abc import Sequence

from ehr.errors import DataError, RequestError
from ehr.formats.read.cms_claims import CmsClaims
from ehr.formats.read.fhir import FhirReader
from ehr.formats.read.long import LongReader
from ehr.formats.read.meds import MedsReader
from ehr.formats.read.mimic_iii import MimicIII
from ehr.formats.read.mimic_iv import MimicIV
from ehr.formats.read.omop import Omop
from ehr.formats.read.protocol import Options, Reader
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.synthea import Synthea
from ehr.formats.read.wide import WideReader

READERS: tuple[type[Reader], ...] = (
    LongReader,
    WideReader,
    MimicIII,
    MimicIV,
    Omop,
    CmsClaims,
    Synthea,
    FhirReader,
    MedsReader,
)
AUTO = "auto"
# `auto` takes the first whose tables are there
_AS_TRIED = sorted(READERS, key=lambda reader: reader.generality)


def open_upload(name: str, files: Sequence[SourceFile], options: Options) -> Reader:
    """The reader of that name, or with `auto` the first that recognises tables of its format."""
    for reader in _AS_TRIED:
        if reader.name == name or (name == AUTO and reader.tables_in(files)):
            return reader(files, options)
    known = ", ".join(reader.name for reader in _AS_TRIED)
    if name != AUTO:
        raise RequestError(f"unknown format '{name[:40]}'; known: {AUTO}, {known}")
    # a file with a table's name and other columns is told apart from one that nobody knows
    unit_free = Options(default_vocabulary=options.default_vocabulary)
    for reader in _AS_TRIED:
        if "has no column" in (explained := reader(files, unit_free).explain()):
            raise DataError(f"by its name this is {reader.name}, but {explained}")
    raise DataError(
        "the format was not recognised: no file has the name or the columns of a known table. A long table's first line"
        f" names record_id and code. Known formats: {known}"
    )
