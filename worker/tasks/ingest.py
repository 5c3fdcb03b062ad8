"""Make a dataset from uploaded or fetched files: read, encode, store. Needs no torch."""

from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from ehr.codes.names import names_for
from ehr.codes.systems import without_decile
from ehr.formats import Limits, Options, SourceFile, open_upload, unpacked
from ehr.formats.cdm import SourceCdm
from ehr.formats.read.protocol import Reader
from ehr.formats.read.rejects import Rejects
from ehr.groups import find_groups
from ehr.report_needs import can_be_judged
from ehr.rules import Rules
from ehr.vocabulary import Vocabulary
from model_store import layout
from model_store.datasets import (
    SPLITS,
    StoredDataset,
    data_hash,
    save_dataset,
    split_of,
    summarise,
    summarise_histories,
)
from model_store.repositories import DatasetRepository
from model_store.tables import Dataset
from worker.contract import IngestPayload
from worker.execution import JobRun, Outcome
from worker.fetching import fetch
from worker.fetching.basket import FetchedFile
from worker.ingestion.called import given_names
from worker.ingestion.encode import Encoder
from worker.ingestion.encoded import Choices, Encoded
from worker.ingestion.history_encoder import HistoryEncoder
from worker.ingestion.rules import find_rules
from worker.ingestion.summary import format_summary, ingest_summary


def ingest(run: JobRun) -> Outcome:
    """Read every file, encode, store."""
    payload = IngestPayload.model_validate(run.claim.payload)
    settings = run.runtime.settings
    limits = Limits(settings.max_inflated_bytes, settings.max_rows, settings.max_field_bytes)
    rejects = Rejects()
    with ExitStack() as stack:
        files = unpacked(_files(run, payload, limits, stack))
        options = Options(payload.unit, payload.codes_from, payload.default_vocabulary, payload.demographics)
        reader = open_upload(payload.format, files, options)
        read_as = {"format": format_summary(payload.format, reader, files)}
        encoder = (HistoryEncoder if reader.over_time else Encoder)(limits, rejects)
        for batch in reader.batches(rejects):
            run.check()
            encoder.add(batch)
    run.progress.step("encode", maximum=1)
    shares = payload.test_share, payload.holdout_share
    choices = Choices(
        payload.min_records,
        settings.max_codes,
        payload.rollup,
        *shares,
        masked_age=reader.masked_age,
        max_visits=settings.max_visits,
        birth_years=payload.birth_years,
    )
    encoded = encoder.finish(choices)
    run.check()
    run.progress.step("store", maximum=1)
    split = split_of(encoded.position, *shares)
    base = _base(encoded, split) | read_as
    summary = ingest_summary(base, encoded, rejects, payload.min_records)
    summary["may_be_attacked"] = payload.may_be_attacked
    summary["can_be_judged"] = can_be_judged(base["splits"])
    groups = find_groups(encoded.whole, encoded.vocabulary.codes, payload.groups)
    summary["groups"] = [
        {"codes": group.name, "rule": group.rule, "origin": group.origin, "n_codes": len(group.codes)}
        for group in groups.groups
    ]
    train = encoded.whole.take(np.flatnonzero(split == SPLITS.index("train")))
    rules = find_rules(train, encoded.vocabulary.codes, groups)
    summary["rules"] = {"certain": len(rules.certain), "found": len(rules) - len(rules.certain)}
    cdm = encoder.facts().source_cdm(reader, encoded.vocabulary.codes, payload.rollup)
    return _store(run, payload, encoded, reader, rules, summary, cdm)


def _base(encoded: Encoded, split: NDArray[np.int64]) -> dict[str, Any]:
    if encoded.histories is None:
        return summarise(encoded.records, encoded.vocabulary, split, encoded.n_patients)
    return summarise_histories(encoded.histories, encoded.vocabulary, split[encoded.histories.offsets[:-1]])


def _files(run: JobRun, payload: IngestPayload, limits: Limits, stack: ExitStack) -> list[SourceFile]:
    """The uploads as files of this machine. Tables are not read in the order they came, so progress is kept by file."""
    stored = [FetchedFile(layout.upload_blob(file.upload_id), file.size, file.label) for file in payload.files]
    stored += fetch(run, payload) if payload.source is not None else []
    run.progress.step("read", max(sum(file.size for file in stored), 1), unit="bytes")
    done = [0] * len(stored)
    files = []
    for i, file in enumerate(stored):

        def on_read(position: int, i: int = i) -> None:
            run.check()
            done[i] = max(done[i], position)
            run.progress.advance(sum(done))

        path = stack.enter_context(run.runtime.store.local_path(file.blob))
        files.append(SourceFile.at(path, file.label, limits, on_read))
    return files


def _store(
    run: JobRun,
    payload: IngestPayload,
    encoded: Encoded,
    reader: Reader,
    rules: Rules,
    summary: dict[str, object],
    cdm: SourceCdm | None,
) -> Outcome:
    units = reader.lab_units.known()
    codes = encoded.vocabulary.codes
    dataset = StoredDataset(
        encoded.records,
        encoded.position,
        Vocabulary(codes, names_for(codes, given_names(reader, encoded.names))),
        payload.test_share,
        payload.holdout_share,
        data_hash(encoded.records, encoded.position, encoded.histories),
        payload.may_be_attacked,
        rules.groups if len(rules.groups) else None,
        rules if len(rules) else None,
        {lab: curve.in_unit(units) for lab, curve in encoded.curves.items()},
        encoded.histories,
    )
    folder = layout.dataset_folder(payload.dataset_id, run.claim.attempt)
    run.own_folders.append(folder)
    kept = {without_decile(code) for code in encoded.vocabulary.codes}
    known = {code: found for code, found in reader.concepts.items() if code in kept}
    manifest_hash = save_dataset(run.runtime.store, folder, dataset, summary, cdm, concepts=known)
    size = run.runtime.store.size_of(folder)

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
                bytes=size,
                summary=summary,
            )
        )

    return Outcome({"dataset_id": payload.dataset_id, "summary": summary}, add_rows, keep=[folder])
