"""What may be shown of an ingestion: how many codes and rows were left out, and why."""

from collections.abc import Mapping, Sequence
from typing import Any

from ehr.disclosure import shown
from ehr.formats.read.protocol import Reader
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from model_store.datasets import shown_counts
from worker.ingestion.encoded import Counted, Encoded


def rows_summary(counted: Counted, min_records: int, every_count_is_shown: bool) -> dict[str, int | None]:
    """`repeated` would give the rows that stay, and with them the one count that is not shown; `rare` can be the count
    of one code, or tell that all of them are in one record each. Such figures are None."""
    rare: int | None = shown(counted.rare)
    if counted.codes_dropped == 1 or counted.rare in (counted.codes_dropped, counted.codes_dropped * (min_records - 1)):
        rare = 0 if counted.codes_dropped == 0 else None
    return {
        "read": counted.usable + counted.rejected,
        "rejected": counted.rejected,
        "repeated": counted.repeated if every_count_is_shown and rare is not None else None,
        "rare": rare,
    }


def format_summary(asked: str, reader: Reader, files: Sequence[SourceFile]) -> dict[str, Any]:
    """Which format it was, and which file was taken for what."""
    tables = reader.tables_in(files)
    return {
        "name": reader.name,
        "recognised": asked == "auto",
        "unit": reader.unit,
        "tables": [{"file": files[i].label, "table": table} for i, table in sorted(tables.items())],
        "ignored": [file.label for i, file in enumerate(files) if i not in tables],
    }


def ingest_summary(base: Mapping[str, Any], encoded: Encoded, rejects: Rejects, min_records: int) -> dict[str, Any]:
    of = encoded.records if encoded.histories is None else encoded.histories.ever()
    every = all(count is not None for count in shown_counts(of))
    return {
        **base,
        "codes_dropped": encoded.counted.codes_dropped,
        "min_records": min_records,
        "rows": rows_summary(encoded.counted, min_records, every),
        "rejected": rejects.summary(),
        **encoded.summary,
    }
