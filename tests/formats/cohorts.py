"""Stored cohorts to write out."""

import hashlib
from dataclasses import replace
from pathlib import Path

from ehr.formats import writer_named
from ehr.formats.concepts import CodeConcepts
from ehr.formats.write.protocol import CohortSource
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from model_store.blobs import FileStore
from model_store.cohorts import cohort_manifest, cohort_source, pack_part
from model_store.manifests import CohortPart, SourceModel

Record = list[int]


def stored(folder: Path, parts: list[list[Record]], codes: tuple[str, ...]) -> CohortSource:
    """A cohort that lies in a store."""
    store = FileStore(f"file://{folder}")
    told, first = [], 0
    for number, rows in enumerate(parts):
        data = pack_part(first, Records.from_sets(rows, len(codes)), Vocabulary(codes))
        blob, sha256 = f"cohorts/p{number}.parquet", hashlib.sha256(data).hexdigest()
        store.write(blob, data)
        told.append(CohortPart(number=number, blob=blob, sha256=sha256, first_record=first, n_records=len(rows)))
        first += len(rows)
    return cohort_source(store, cohort_manifest(SourceModel(id="m"), {"seed": 0}, Vocabulary(codes), told))


def written(
    folder: Path,
    name: str,
    parts: list[list[Record]],
    codes: tuple[str, ...],
    concepts: dict[str, CodeConcepts] | None = None,
    names: dict[str, str] | None = None,
) -> bytes:
    """`names`: of codes, which are then asked for."""
    source = replace(stored(folder, parts, codes), concepts=concepts or {})
    source = source if names is None else replace(source, names=names, with_names=True)
    return b"".join(writer_named(name).write(source))
