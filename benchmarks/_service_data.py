"""Large things for the service to chew on, made without the engine."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from ehr.records import Records
from ehr.vocabulary import Vocabulary
from model_store import layout
from model_store.blobs import BlobStore
from model_store.cohorts import cohort_manifest, pack_part, save_cohort_manifest
from model_store.database import Database
from model_store.ids import DATASET, JOB, MODEL, new_id
from model_store.manifests import CohortPart, SourceModel
from model_store.repositories import CohortRepository
from model_store.tables import Cohort, Job

CODES = Vocabulary(tuple(f"ICD10CM:{letter}{number:02d}" for letter in "ABCDEFGHIJ" for number in range(100)))
CODES_PER_RECORD = 10
PART = 16_384
BLOCK = 100_000

Progress = Callable[[int, int], None]


def write_long_csv(path: Path, records: int, progress: Progress) -> int:
    """A long table of ten codes per record; returns the rows."""
    rng = np.random.default_rng(0)
    rest = pa.array([code.split(":")[1] for code in CODES.codes])
    schema = pa.schema([("record_id", pa.int64()), ("vocabulary", pa.string()), ("code", pa.string())])
    options = pacsv.WriteOptions(quoting_style="needed")
    with pacsv.CSVWriter(str(path), schema, write_options=options) as writer:
        for first in range(0, records, BLOCK):
            n = min(BLOCK, records - first)
            # a few codes are common and most are rare, as in real records
            codes = (len(CODES) * rng.random((n, CODES_PER_RECORD)) ** 2.5).astype(np.int32)
            owner = np.repeat(np.arange(first, first + n), CODES_PER_RECORD)
            columns = [pa.array(owner), pa.array(["ICD10CM"] * len(owner)), rest.take(pa.array(codes.ravel()))]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            progress(first + n, records)
    return records * CODES_PER_RECORD


def add_cohort(database: Database, store: BlobStore, owner: str, records: int, progress: Progress) -> str:
    """A finished cohort as a worker would have left it."""
    rng = np.random.default_rng(1)
    job_id = new_id(JOB)
    folder = layout.cohort_folder(job_id)
    parts = []
    for number, first in enumerate(range(0, records, PART)):
        n = min(PART, records - first)
        sizes = rng.poisson(CODES_PER_RECORD, n)
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        indices = rng.integers(0, len(CODES), indptr[-1]).astype(np.int32)
        data, blob = pack_part(first, Records(indptr, indices, len(CODES)), CODES), f"{folder}/parts/p{number}.parquet"
        store.write(blob, data)
        sha256 = hashlib.sha256(data).hexdigest()
        parts.append(CohortPart(number=number, blob=blob, sha256=sha256, first_record=first, n_records=n))
        progress(first + n, records)
    manifest_hash = save_cohort_manifest(
        store, f"{folder}/a1/manifest.json", cohort_manifest(SourceModel(), {"seed": 0}, CODES, parts)
    )
    row = Cohort(
        job_id=job_id,
        owner=owner,
        model_id=new_id(MODEL),
        dataset_id=new_id(DATASET),
        n_records=records,
        prefix=f"{folder}/a1",
        manifest_hash=manifest_hash,
        manifest={"n_parts": len(parts)},
    )
    with database.session_scope() as session:
        CohortRepository(session).add(row)
    return job_id


def add_jobs(database: Database, owner: str, n: int, progress: Progress) -> None:
    """Finished jobs, each with the events it would have."""
    from sqlalchemy import insert

    from model_store.tables import JobEvent

    states = ("queued", "running", "succeeded")
    for first in range(0, n, 5_000):
        ids = [new_id(JOB) for _ in range(min(5_000, n - first))]
        rows = [
            {"id": i, "owner": owner, "kind": "generate", "state": "succeeded", "payload": {}, "max_attempts": 3}
            for i in ids
        ]
        events = [{"job_id": i, "kind": "state", "data": {"state": state}} for i in ids for state in states]
        with database.session_scope() as session:
            session.execute(insert(Job), rows)
            session.execute(insert(JobEvent), events)
        progress(first + len(ids), n)
