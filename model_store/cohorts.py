"""Cohorts at rest: Parquet parts in long form (`record_id`, `code`) and a manifest that tells how to make them again.

Synthetic records are numbered from 0; one without any code has no row, but its number is counted.
"""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ehr.errors import CorruptError
from ehr.vocabulary import Vocabulary
from model_store.blobs import BlobStore
from model_store.bundles import library_versions
from model_store.files import read_manifest, to_json

FORMAT, VERSION = "ehr-d3pm cohort", 1
ROWS_AT_A_TIME = 1 << 16
BLOCK_RECORDS = 1 << 14
EFFECTIVE = "effective_records"
SCHEMA = pa.schema([("record_id", pa.int64()), ("code", pa.dictionary(pa.int32(), pa.string()))])


@dataclass(frozen=True)
class RecordBlock:
    """Consecutive synthetic records as CSR; record i of the block is number `first_record + i` of the cohort."""

    first_record: int
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def followed_by(self, other: "RecordBlock") -> "RecordBlock":
        indptr = np.concatenate([self.indptr, self.indptr[-1] + other.indptr[1:]])
        return RecordBlock(self.first_record, indptr, np.concatenate([self.indices, other.indices]))

    def between(self, first: int, end: int) -> "RecordBlock":
        """Records `first` to `end` of the block."""
        indptr = self.indptr[first : end + 1]
        return RecordBlock(self.first_record + first, indptr - indptr[0], self.indices[indptr[0] : indptr[-1]])


def pack_part(
    first_record: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    codes: Vocabulary,
    effective: float | None = None,
) -> bytes:
    """A part as Parquet bytes; the same records give the same bytes. `effective`: how many independent records it is
    worth, where records were drawn by weight."""
    record = np.repeat(np.arange(first_record, first_record + len(indptr) - 1), np.diff(indptr))
    code = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(codes.codes, pa.string()))
    sink = io.BytesIO()
    table = pa.Table.from_arrays([pa.array(record, pa.int64()), code], schema=SCHEMA)
    if effective is not None:
        table = table.replace_schema_metadata({EFFECTIVE: repr(effective)})
    pq.write_table(table, sink, compression="zstd", row_group_size=ROWS_AT_A_TIME)
    return sink.getvalue()


def cohort_manifest(
    model: dict[str, Any], request: dict[str, Any], vocabulary: Vocabulary, parts: list[dict[str, Any]]
) -> dict[str, Any]:
    """`parts` are {number, blob, sha256, bytes, first_record, n_records} in order."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": model,
        "request": request,
        "vocabulary": list(vocabulary.codes),
        "vocabulary_hash": vocabulary.hash,
        "libraries": library_versions(),
        "dates": "none; formats that cannot be without have them synthesised from the record's number",
        "parts": parts,
    }


def save_cohort_manifest(store: BlobStore, blob: str, manifest: dict[str, Any]) -> str:
    """Write it and return its sha256."""
    data = to_json(manifest)
    store.write(blob, data)
    return hashlib.sha256(data).hexdigest()


def load_cohort_manifest(store: BlobStore, folder: str, manifest_hash: str) -> dict[str, Any]:
    """The manifest, verified. `folder` is the cohort row's prefix."""
    return read_manifest(store, folder, manifest_hash, FORMAT, VERSION)


def iter_tables(store: BlobStore, manifest: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The cohort's rows (record_id, code) in order, a bounded number at a time."""
    codes = pa.array(manifest["vocabulary"], pa.string())
    for block in iter_blocks(store, manifest):
        record = np.repeat(np.arange(block.first_record, block.first_record + len(block)), np.diff(block.indptr))
        code = pa.DictionaryArray.from_arrays(pa.array(block.indices, pa.int32()), codes)
        batch = pa.RecordBatch.from_arrays([pa.array(record, pa.int64()), code], schema=SCHEMA)
        for first in range(0, len(batch), ROWS_AT_A_TIME):
            yield batch.slice(first, ROWS_AT_A_TIME)


def iter_blocks(store: BlobStore, manifest: dict[str, Any]) -> Iterator[RecordBlock]:
    """The cohort's records in order, as indices into the manifest's vocabulary. Each part is verified as it is read.

    Blocks have BLOCK_RECORDS records whatever the size of the parts: a file made of them is the same for any.
    """
    positions = {code: i for i, code in enumerate(manifest["vocabulary"])}
    waiting: RecordBlock | None = None
    for part in manifest["parts"]:
        table = pq.read_table(io.BytesIO(store.read(part["blob"], part["sha256"])))
        block = _block(table, part["first_record"], part["n_records"], positions)
        waiting = block if waiting is None else waiting.followed_by(block)
        while len(waiting) >= BLOCK_RECORDS:
            yield waiting.between(0, BLOCK_RECORDS)
            waiting = waiting.between(BLOCK_RECORDS, len(waiting))
    if waiting is not None and len(waiting):
        yield waiting


def effective_records(store: BlobStore, manifest: dict[str, Any]) -> float | None:
    """How many independent records the cohort is worth; None where none was drawn by weight."""
    found, weighed = 0.0, False
    for part in manifest["parts"]:
        schema = pq.read_schema(io.BytesIO(store.read(part["blob"], part["sha256"])))
        told = (schema.metadata or {}).get(EFFECTIVE.encode())
        found += part["n_records"] if told is None else float(told)
        weighed |= told is not None
    return found if weighed else None


def _block(table: pa.Table, first: int, n: int, positions: dict[str, int]) -> RecordBlock:
    record = table["record_id"].to_numpy() - first
    code = table["code"].combine_chunks()
    if isinstance(code, pa.ChunkedArray):
        code = code.combine_chunks()
    if len(record) and (record.min() < 0 or record.max() >= n):
        raise CorruptError("a part holds records that are not its own")
    translate = np.array([positions[name] for name in code.dictionary.to_pylist()], dtype=np.int32)
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(record, minlength=n), out=indptr[1:])
    indices = translate[code.indices.to_numpy()] if len(record) else np.zeros(0, dtype=np.int32)
    return RecordBlock(first, indptr, indices)
