"""The forms in which cohorts leave the service. A new one is one file here and one line in WRITERS."""

from ehr.errors import RequestError
from ehr.formats.write.arrow import ARROW, FEATHER
from ehr.formats.write.fhir_ndjson import FHIR_NDJSON
from ehr.formats.write.long_csv import LONG_CSV
from ehr.formats.write.meds_parquet import MEDS_PARQUET
from ehr.formats.write.mimic_iii_zip import MIMIC_III_ZIP
from ehr.formats.write.ndjson import NDJSON
from ehr.formats.write.npz import NPZ
from ehr.formats.write.omop_zip import OMOP_ZIP
from ehr.formats.write.parquet import PARQUET
from ehr.formats.write.protocol import Writer
from ehr.formats.write.wide_csv import WIDE_CSV

WRITERS: tuple[Writer, ...] = (
    OMOP_ZIP,
    MIMIC_III_ZIP,
    FHIR_NDJSON,
    MEDS_PARQUET,
    LONG_CSV,
    WIDE_CSV,
    NPZ,
    NDJSON,
    PARQUET,
    ARROW,
    FEATHER,
)


def writer_named(name: str) -> Writer:
    """The writer of that name; RequestError naming the known ones otherwise."""
    for known in WRITERS:
        if known.name == name:
            return known
    raise RequestError(f"unknown format '{name[:40]}'; known: {', '.join(known.name for known in WRITERS)}")
