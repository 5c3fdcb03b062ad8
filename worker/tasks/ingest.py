"""Make a dataset from uploaded files: read, encode, store. Needs no torch."""

from contextlib import ExitStack

from sqlalchemy.orm import Session

from model_store import layout
from model_store.datasets import StoredDataset, data_hash, positions, save_dataset, split_of, summarise
from model_store.repositories import DatasetRepository
from model_store.tables import Dataset
from worker.contract import IngestPayload
from worker.execution import JobRun, Outcome
from worker.ingestion import Limits, Source, reader_for
from worker.ingestion.encode import Encoder
from worker.ingestion.rejects import Rejects


def ingest(run: JobRun) -> Outcome:
    """Read every file, encode, store."""
    payload = IngestPayload.model_validate(run.claim.payload)
    settings = run.runtime.settings
    limits = Limits(settings.max_inflated_bytes, settings.max_rows, settings.max_field_bytes)
    rejects = Rejects()
    encoder = Encoder(limits, payload.default_vocabulary, rejects)
    _read(run, payload, limits, encoder, rejects)
    run.progress.step("encode", maximum=1)
    encoded = encoder.finish(payload.min_records, settings.max_codes)
    run.check()
    run.progress.step("store", maximum=1)
    position = positions(encoded.patients, encoded.n_patients)
    dataset = StoredDataset(
        encoded.records,
        position,
        encoded.vocabulary,
        payload.test_share,
        payload.holdout_share,
        data_hash(encoded.records, position),
    )
    split = split_of(position, payload.test_share, payload.holdout_share)
    summary = summarise(encoded.records, encoded.vocabulary, split, encoded.n_patients) | {
        "codes_dropped": encoded.codes_dropped,
        "min_records": payload.min_records,
        "rejected": rejects.told(),
    }
    folder = layout.dataset_folder(payload.dataset_id, run.claim.attempt)
    run.own_folders.append(folder)
    manifest_hash = save_dataset(run.runtime.store, folder, dataset, summary)

    def add_rows(session: Session) -> None:
        DatasetRepository(session).add(
            Dataset(
                id=payload.dataset_id,
                owner=run.claim.owner,
                name=payload.name,
                job_id=run.claim.job_id,
                prefix=folder,
                manifest_hash=manifest_hash,
                data_hash=dataset.data_hash,
                vocabulary_hash=dataset.vocabulary.hash,
                n_codes=len(dataset.vocabulary),
                summary=summary,
            )
        )

    return Outcome({"dataset_id": payload.dataset_id, "summary": summary}, add_rows, keep=[folder])


def _read(run: JobRun, payload: IngestPayload, limits: Limits, encoder: Encoder, rejects: Rejects) -> None:
    total = sum(file.size for file in payload.files)
    run.progress.step("read", max(total, 1), unit="bytes")
    before = 0
    for file in payload.files:

        def on_read(read: int, before: int = before) -> None:
            run.check()
            run.progress.advance(before + read)

        with ExitStack() as stack:
            path = stack.enter_context(run.runtime.store.local_path(layout.upload_blob(file.upload_id)))
            for batch in reader_for(Source(path, on_read), payload.format, limits).batches(rejects):
                encoder.add(batch)
        before += file.size
