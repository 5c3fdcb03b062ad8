"""Cohorts at rest: Parquet parts in long form (`record_id`, `code`; of histories `patient_id`, `visit`, `gap`, `code`)
and a manifest that tells how to make them again.

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
from ehr.formats.write.dates import dates_of_histories
from ehr.formats.write.protocol import BLOCK_RECORDS, Block, CohortSource
from ehr.histories import Histories
from ehr.records import Records, indptr_of
from ehr.vocabulary import Vocabulary
from model_store.blobs import BlobStore
from model_store.bundles import library_versions
from model_store.manifests import CohortManifest, CohortPart, DatasetManifest, SourceModel, stored_cdm
from model_store.tables import Cohort, Dataset

EFFECTIVE = "effective_records"
BLOCK_PATIENTS = 1 << 10


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
    """`remarks`: the request's `warnings`, how it was `resolved`, the model's `lab_curves`, the `origin` of histories,
    and `files` that lie beside the manifest."""
    dates = "none; formats that cannot be without have them synthesised from the record's number"
    if (origin := remarks.get("origin")) is not None:
        dates = dates_of_histories(np.datetime64(origin, "D"))
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
    over_time = manifest.origin is not None
    return CohortSource(
        manifest.vocabulary,
        sum(part.n_records for part in manifest.parts),
        lambda: iter_history_blocks(store, manifest) if over_time else iter_blocks(store, manifest),
        lambda: sum(pq.read_metadata(_file(store, part)).num_rows for part in manifest.parts),
        _written(manifest) | {"lab_cut_points": {lab: curve.cuts for lab, curve in curves.items()}},
        {} if dataset is None else dataset.concepts,
        cdm,
        manifest.request.get("seed") or 0,
        curves,
        manifest.names,
        origin=None if manifest.origin is None else np.datetime64(manifest.origin, "D"),
    )


def known_source(store: BlobStore, cohort: Cohort, dataset: Dataset | None, manifest: CohortManifest) -> CohortSource:
    """The cohort with what is known of its codes: what it brought with it, and what its owner's dataset says if that is
    still there."""
    kept = dataset if dataset is not None and dataset.owner == cohort.owner else None
    told = None if kept is None else DatasetManifest.read(store, kept.prefix, kept.manifest_hash)

    def cdm() -> SourceCdm | None:
        found = stored_cdm(store, cohort.prefix, manifest)
        if found is None and kept is not None and told is not None:  # of a model that was trained before models kept it
            found = stored_cdm(store, kept.prefix, told)
        return None if found is None else SourceCdm.from_json(found)

    return cohort_source(store, manifest, told, cdm)


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


def iter_records(store: BlobStore, manifest: CohortManifest) -> Iterator[Records]:
    """The cohort's records, some at a time; of patients over time, all that each ever has."""
    if manifest.origin is None:
        yield from (block.records for block in iter_blocks(store, manifest))
    else:
        yield from (histories.ever() for histories in iter_histories(store, manifest))


def iter_histories(store: BlobStore, manifest: CohortManifest) -> Iterator[Histories]:
    """The patients of a cohort over time, part by part."""
    return (load_history_part(store, part, manifest.vocabulary) for part in manifest.parts)


def iter_history_blocks(store: BlobStore, manifest: CohortManifest) -> Iterator[Block]:
    """The same for histories: blocks of whole patients, whose records are visits."""
    origin, first_visit, first_patient = np.datetime64(manifest.origin or "", "D"), 0, 0
    waiting: list[Histories] = []
    for number, part in enumerate(manifest.parts):
        waiting.append(load_history_part(store, part, manifest.vocabulary))
        joined = Histories.concatenate(waiting)
        whole = len(joined) // BLOCK_PATIENTS * BLOCK_PATIENTS
        whole = len(joined) if number + 1 == len(manifest.parts) else whole
        for begin in range(0, whole, BLOCK_PATIENTS):
            some = joined.take(np.arange(begin, min(begin + BLOCK_PATIENTS, whole)))
            yield Block.of_histories(first_visit, first_patient, some, origin)
            first_visit, first_patient = first_visit + len(some.visits), first_patient + len(some)
        waiting = [joined.take(np.arange(whole, len(joined)))]


def pack_history_part(
    first_patient: int, histories: Histories, codes: Vocabulary, effective: float | None = None
) -> bytes:
    """Histories as Parquet bytes: a row for each code, in order; `visit` 0 has what is true of the patient at every
    visit, 1 is the first visit. A visit without codes has a row without a code."""
    number = np.arange(len(histories.visits)) - np.repeat(histories.offsets[:-1], histories.visit_counts()) + 1
    empty = np.flatnonzero(histories.visits.sizes() == 0)
    patients, visits, static = histories.patients(), histories.visits.rows(), histories.static.rows()
    of_visit = np.concatenate([visits, empty])
    patient = np.concatenate([static, patients[of_visit]])
    visit = np.concatenate([np.zeros(len(static), np.int64), number[of_visit]])
    gap = np.concatenate([np.zeros(len(static), np.int32), histories.gaps[of_visit]])
    code = np.concatenate([histories.static.indices, histories.visits.indices, np.zeros(len(empty), np.int32)])
    has_none = np.arange(len(code)) >= len(code) - len(empty)
    order = np.lexsort((code, visit, patient))
    columns = {
        "patient_id": pa.array(patient[order] + first_patient, pa.int64()),
        "visit": pa.array(visit[order], pa.int32()),
        "gap": pa.array(gap[order], pa.int32()),
        "code": pa.DictionaryArray.from_arrays(
            pa.array(code[order], pa.int32(), mask=has_none[order]), pa.array(codes.codes, pa.string())
        ),
    }
    table, sink = pa.table(columns), io.BytesIO()
    if effective is not None:
        table = table.replace_schema_metadata({EFFECTIVE: repr(effective)})
    pq.write_table(table, sink, compression="zstd", row_group_size=ROWS_AT_A_TIME)
    return sink.getvalue()


def load_history_part(store: BlobStore, part: CohortPart, vocabulary: Sequence[str]) -> Histories:
    """The histories of a part, verified."""
    table = pq.read_table(_file(store, part), read_dictionary=["code"])
    patient = table["patient_id"].to_numpy() - part.first_record
    if len(patient) and (patient.min() < 0 or patient.max() >= part.n_records):
        raise CorruptError("a part holds patients that are not its own")
    visit, gap, code = table["visit"].to_numpy(), table["gap"].to_numpy(), _one_array(table["code"])
    positions = {name: position for position, name in enumerate(vocabulary)}
    translate = np.array([positions[name] for name in code.dictionary.to_pylist()], dtype=np.int64)
    has_code = code.indices.is_valid().to_numpy(zero_copy_only=False)
    index = translate[code.indices.fill_null(0).to_numpy()] if len(translate) else np.zeros(len(code), np.int64)
    begins = (visit > 0) & (np.diff(patient, prepend=-1).astype(bool) | np.diff(visit, prepend=0).astype(bool))
    row, there = np.cumsum(begins) - 1, has_code & (visit > 0)
    counts = np.bincount(patient[begins], minlength=part.n_records)
    visits = Records.from_pairs(row[there], index[there], int(begins.sum()), len(positions))
    static = Records.from_pairs(patient[visit == 0], index[visit == 0], part.n_records, len(positions))
    return Histories(visits, indptr_of(counts), gap[begins], static)


def _one_array(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """A column in one piece, with one dictionary."""
    joined = column.combine_chunks()
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


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
    code = _one_array(table["code"])
    if len(record) and (record.min() < 0 or record.max() >= part.n_records):
        raise CorruptError("a part holds records that are not its own")
    translate = np.array([positions[name] for name in code.dictionary.to_pylist()], dtype=np.int32)
    indptr = np.zeros(part.n_records + 1, dtype=np.int64)
    np.cumsum(np.bincount(record, minlength=part.n_records), out=indptr[1:])
    indices = translate[code.indices.to_numpy()] if len(record) else np.zeros(0, dtype=np.int32)
    return Records(indptr, indices, len(positions))
