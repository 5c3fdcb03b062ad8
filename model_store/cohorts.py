"""Cohorts at rest: Parquet parts in long form (`record_id`, `code`) and a manifest that tells how to make them again.

Synthetic records are numbered from 0; one without any code has no row, but its number is counted.
"""

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ehr.canonical_json import to_json
from ehr.errors import CorruptError
from ehr.formats.cdm import SourceCdm
from ehr.formats.write.arrow_rows import ROWS_AT_A_TIME, batch_of
from ehr.formats.write.protocol import BLOCK_RECORDS, Block, CohortSource
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from model_store.blobs import BlobStore
from model_store.bundles import library_versions
from model_store.manifests import CohortManifest, CohortPart, DatasetManifest, SourceModel

EFFECTIVE = "effective_records"


def pack_part(first_record: int, records: Records, codes: Vocabulary, effective: float | None = None) -> bytes:
    """A part as Parquet bytes; the same records give the same bytes. `effective`: how many independent records it is
    worth, where records were drawn by weight."""
    sink = io.BytesIO()
    table = pa.Table.from_batches([batch_of(Block(first_record, records), codes.codes)])
    if effective is not None:
        table = table.replace_schema_metadata({EFFECTIVE: repr(effective)})
    pq.write_table(table, sink, compression="zstd", row_group_size=ROWS_AT_A_TIME)
    return sink.getvalue()


def cohort_manifest(
    model: SourceModel, request: dict[str, Any], vocabulary: Vocabulary, parts: Sequence[CohortPart], **remarks: Any
) -> CohortManifest:
    """`remarks`: the request's `warnings`, how it was `resolved`, the model's `lab_curves`, and `files` that lie beside
    the manifest."""
    dates = "none; formats that cannot be without have them synthesised from the record's number"
    said = {"model": model, "request": request, "libraries": library_versions(), "dates": dates, "parts": parts}
    return CohortManifest.of(vocabulary, **said, **remarks)


def save_cohort_manifest(store: BlobStore, blob: str, manifest: CohortManifest) -> str:
    """Write it and return its sha256."""
    data = to_json(manifest.stored())
    store.write(blob, data)
    return hashlib.sha256(data).hexdigest()


def cohort_source(
    store: BlobStore,
    manifest: CohortManifest,
    dataset: DatasetManifest | None = None,
    cdm: Callable[[], SourceCdm | None] = lambda: None,
) -> CohortSource:
    """What writers need. `dataset`: what is known of the codes, if the cohort's dataset is still there."""
    curves = manifest.lab_curves or ({} if dataset is None else dataset.curves)
    return CohortSource(
        manifest.vocabulary,
        sum(part.n_records for part in manifest.parts),
        lambda: iter_blocks(store, manifest),
        lambda: sum(pq.read_metadata(_file(store, part)).num_rows for part in manifest.parts),
        _written(manifest) | {"lab_cut_points": {lab: curve.cuts for lab, curve in curves.items()}},
        {} if dataset is None else dataset.concepts,
        cdm,
        manifest.request.get("seed") or 0,
        curves,
        manifest.names,
    )


def _written(manifest: CohortManifest) -> dict[str, Any]:
    """What a file says about how its cohort was made. Hashes of the data, and of what covers it, stay inside: whoever
    knows all patients but one could try out what that one has."""
    told, inside = manifest.stored(without=["parts", "files"]), ("data_hash", "manifest_hash")
    return told | {"model": {name: value for name, value in told["model"].items() if name not in inside}}


def iter_blocks(store: BlobStore, manifest: CohortManifest) -> Iterator[Block]:
    """The cohort's records in order, as indices into the manifest's vocabulary. Each part is verified as it is read.

    Blocks have BLOCK_RECORDS records whatever the size of the parts: a file made of them is the same for any.
    """
    positions = {code: position for position, code in enumerate(manifest.vocabulary)}
    first, waiting = 0, Records.from_sets([], len(manifest.vocabulary))
    for part in manifest.parts:
        first = part.first_record - len(waiting)
        waiting = Records.concatenate([waiting, _records(store, part, positions)])
        whole = len(waiting) // BLOCK_RECORDS * BLOCK_RECORDS
        for begin in range(0, whole, BLOCK_RECORDS):
            yield Block(first + begin, _between(waiting, begin, begin + BLOCK_RECORDS))
        first, waiting = first + whole, _between(waiting, whole, len(waiting))
    if len(waiting):
        yield Block(first, waiting)


def effective_records(store: BlobStore, manifest: CohortManifest) -> float | None:
    """How many independent records the cohort is worth; None where none was drawn by weight."""
    found, weighed = 0.0, False
    for part in manifest.parts:
        kept = (pq.read_schema(_file(store, part)).metadata or {}).get(EFFECTIVE.encode())
        found += part.n_records if kept is None else float(kept)
        weighed |= kept is not None
    return found if weighed else None


def _file(store: BlobStore, part: CohortPart) -> io.BytesIO:
    return io.BytesIO(store.read(part.blob, part.sha256))


def _between(records: Records, first: int, end: int) -> Records:
    indptr = records.indptr[first : end + 1]
    return Records(indptr - indptr[0], records.indices[indptr[0] : indptr[-1]], records.n_codes)


def _records(store: BlobStore, part: CohortPart, positions: dict[str, int]) -> Records:
    table = pq.read_table(_file(store, part))
    record = table["record_id"].to_numpy() - part.first_record
    code = table["code"].combine_chunks()
    if isinstance(code, pa.ChunkedArray):
        code = code.combine_chunks()
    if len(record) and (record.min() < 0 or record.max() >= part.n_records):
        raise CorruptError("a part holds records that are not its own")
    translate = np.array([positions[name] for name in code.dictionary.to_pylist()], dtype=np.int32)
    indptr = np.zeros(part.n_records + 1, dtype=np.int64)
    np.cumsum(np.bincount(record, minlength=part.n_records), out=indptr[1:])
    indices = translate[code.indices.to_numpy()] if len(record) else np.zeros(0, dtype=np.int32)
    return Records(indptr, indices, len(positions))
