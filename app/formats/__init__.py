"""The forms in which cohorts leave the service. A new one is a file here and a line in FORMATS."""

from app.formats.long_csv import LONG_CSV
from app.formats.ndjson import NDJSON
from app.formats.parquet import PARQUET
from app.formats.protocol import Format
from model_store.errors import RequestError

__all__ = ["FORMATS", "Format", "format_named"]

FORMATS: tuple[Format, ...] = (LONG_CSV, NDJSON, PARQUET)


def format_named(name: str) -> Format:
    """The format of that name; RequestError naming the known ones otherwise."""
    for known in FORMATS:
        if known.name == name:
            return known
    raise RequestError(f"unknown format '{name[:40]}'; known: {', '.join(known.name for known in FORMATS)}")
