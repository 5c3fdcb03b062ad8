"""Stored cohorts to write out."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from ehr.formats import writer_named
from ehr.formats.protocol import CodeConcepts
from ehr.vocabulary import Vocabulary
from model_store.blobs import BlobStore, FileStore
from model_store.cohorts import cohort_manifest, pack_part

Record = list[int]


def stored(folder: Path, parts: list[list[Record]], codes: tuple[str, ...]) -> tuple[BlobStore, dict[str, Any]]:
    """A store with the cohort in it, and the cohort's manifest."""
    store = FileStore(f"file://{folder}")
    told, first = [], 0
    for number, rows in enumerate(parts):
        indptr = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
        indices = np.array([code for row in rows for code in row], dtype=np.int32)
        data, blob = pack_part(first, indptr, indices, Vocabulary(codes)), f"cohorts/p{number}.parquet"
        store.write(blob, data)
        sha256 = hashlib.sha256(data).hexdigest()
        told.append({"number": number, "blob": blob, "sha256": sha256, "first_record": first, "n_records": len(rows)})
        first += len(rows)
    return store, cohort_manifest({"id": "m"}, {"seed": 0}, Vocabulary(codes), told)


def written(
    folder: Path,
    name: str,
    parts: list[list[Record]],
    codes: tuple[str, ...],
    concepts: dict[str, CodeConcepts] | None = None,
) -> bytes:
    store, manifest = stored(folder, parts, codes)
    return b"".join(writer_named(name).write(store, manifest, concepts or {}))
