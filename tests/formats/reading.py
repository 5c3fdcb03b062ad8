"""Reading an upload as the ingest task does, without a database."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ehr.formats import Limits, Options, SourceFile, open_upload, unpacked
from ehr.formats.read.protocol import Reader
from ehr.formats.read.rejects import Rejects
from worker.ingestion.encode import Encoder
from worker.ingestion.encoded import Choices, Encoded
from worker.ingestion.history_encoder import HistoryEncoder
from worker.ingestion.summary import format_summary

LIMITS = Limits(inflated_bytes=1 << 20, rows=100_000, field_bytes=40)
ROOMY = Limits(inflated_bytes=1 << 30, rows=10_000_000, field_bytes=256)
DATA = Path(__file__).parents[2].parent / "shared" / "data" / "formats"
CHOICES = ("min_records", "max_codes", "rollup", "test_share", "holdout_share", "max_visits", "birth_years")


@dataclass(frozen=True)
class Result:
    encoded: Encoded
    rejected: dict[str, Any]
    reader: Reader
    format: dict[str, Any]

    @property
    def records(self) -> dict[str, set[str]]:
        """Codes by record id, as the upload named it."""
        return dict(zip(self.ids, map(set, sets_of(self.encoded)), strict=True))

    ids: tuple[str, ...] = ()


def read_upload(
    files: dict[str, bytes] | list[Path],
    folder: Path | None = None,
    *,
    name: str = "auto",
    limits: Limits = LIMITS,
    **options: Any,
) -> Result:
    paths = {path.name: path for path in files} if isinstance(files, list) else {}
    if isinstance(files, dict):
        assert folder is not None
        for number, (label, data) in enumerate(files.items()):
            paths[label] = folder / f"upload{number}"
            paths[label].write_bytes(data)
    sources = unpacked([SourceFile.at(path, label, limits) for label, path in paths.items()])
    choices: dict[str, Any] = {"min_records": 1} | {key: options.pop(key) for key in CHOICES if key in options}
    reader = open_upload(name, sources, Options(**options))
    rejects = Rejects()
    encoder = (HistoryEncoder if reader.over_time else Encoder)(limits, rejects)
    for batch in reader.batches(rejects):
        encoder.add(batch)
    encoded = encoder.finish(Choices(masked_age=reader.masked_age, **choices))
    ids = tuple(np.array(list(encoder.records.number_of), dtype=object)[encoder.present].tolist())
    return Result(encoded, rejects.summary(), reader, format_summary(name, reader, sources), ids)


def sets_of(encoded: Encoded) -> list[list[str]]:
    records = encoded.records
    return [
        [encoded.vocabulary.codes[i] for i in records.indices[a:b]]
        for a, b in zip(records.indptr[:-1], records.indptr[1:], strict=True)
    ]
