"""Reading uploads. A new format is one file here and a line in READERS."""

from model_store.errors import RequestError
from worker.ingestion.long_csv import LongCsv
from worker.ingestion.long_parquet import LongParquet
from worker.ingestion.source import Limits, Reader, Source

__all__ = ["READERS", "Limits", "Reader", "Source", "reader_for"]

# `auto` takes the first that recognises the file, so the one that recognises any text comes last
READERS: tuple[type[Reader], ...] = (LongParquet, LongCsv)


def reader_for(source: Source, name: str, limits: Limits) -> Reader:
    """The reader of that name, or with `auto` the first that recognises the file."""
    for reader in READERS:
        if reader.name == name or (name == "auto" and reader.recognises(source)):
            return reader(source, limits)
    raise RequestError(f"unknown format '{name}'; known: auto, {', '.join(reader.name for reader in READERS)}")
