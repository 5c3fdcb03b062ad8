"""Measure a cohort against real records the model has never seen; the report is versioned JSON."""

from dataclasses import asdict
from math import sqrt
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from model_store.cohorts import RecordBlock, iter_blocks, load_cohort_manifest
from model_store.datasets import Csr, StoredDataset
from model_store.errors import DataError
from model_store.repositories import CohortRepository, ReportRepository
from model_store.small_cells import shown
from model_store.tables import Cohort, Report
from model_store.vocabulary import ResolvedCondition, Vocabulary
from worker.contract import Conditions, EvaluatePayload
from worker.engine.metrics import FIDELITY, Result, fidelity
from worker.engine.records import Records
from worker.execution import JobRun, Outcome
from worker.tasks.loading import as_records, dataset_of, plain

REPORT_VERSION = 1
# fewer real records than this are no yardstick for a conditioned cohort
SMALLEST_SLICE = 200


def evaluate(run: JobRun) -> Outcome:
    """Load cohort and dataset, measure, store the report."""
    payload = EvaluatePayload.model_validate(run.claim.payload)
    run.progress.step("load", maximum=1)
    with run.runtime.database.read_scope() as session:
        cohort = CohortRepository(session).get(run.claim.owner, payload.cohort_job_id)
    manifest = load_cohort_manifest(run.runtime.store, cohort.prefix, cohort.manifest_hash)
    dataset = dataset_of(run.runtime, run.claim.owner, cohort.dataset_id)
    if manifest["vocabulary_hash"] != dataset.vocabulary.hash:
        raise DataError("the cohort and its dataset have different vocabularies")
    synth = _joined(list(iter_blocks(run.runtime.store, manifest)), len(dataset.vocabulary))
    run.check()
    body = _measured(run, cohort, manifest, synth, dataset, payload.seed)
    run.progress.step("store", maximum=1)

    def add_rows(session: Session) -> None:
        ReportRepository(session).add(
            Report(
                job_id=run.claim.job_id,
                cohort_job_id=payload.cohort_job_id,
                owner=run.claim.owner,
                version=REPORT_VERSION,
                body=plain(body),
            )
        )

    return Outcome({"report_id": run.claim.job_id, "cohort_id": payload.cohort_job_id}, add_rows, keep=[])


def _joined(blocks: list[RecordBlock], n_codes: int) -> Records:
    parts = [Records.from_sets([], n_codes), *(Records(b.indptr, b.indices, n_codes) for b in blocks)]
    return Records.concatenate(parts)


def _measured(
    run: JobRun, cohort: Cohort, manifest: dict[str, Any], synth: Records, dataset: StoredDataset, seed: int
) -> dict[str, Any]:
    test, train = (dataset.split(name, manifest["model"].get("holdout_share")) for name in ("test", "train"))
    condition = _condition(manifest, dataset.vocabulary)
    body: dict[str, Any] = {
        "version": REPORT_VERSION,
        "cohort_id": cohort.job_id,
        "model_id": cohort.model_id,
        "dataset_id": cohort.dataset_id,
        "records": len(synth),
        "reference": "test records",
        "small_cells": "counts of 1 to 10 patients are not shown",
    }
    if asked := manifest["request"].get("targets"):
        body["targets"] = _attained(dataset.vocabulary, synth, asked)
        body["targets_note"] = "fidelity compares with real records as they are, whose shares were not asked for"
    if not condition.is_empty:
        body["conditional"] = _attainment(condition, synth, train)
        body["reference"] = "test records that satisfy the condition"
        test, train = (_slice(condition, part) for part in (test, train))
        if min(len(test), len(train)) < SMALLEST_SLICE:
            reason = f"fewer than {SMALLEST_SLICE} real records of the train or test split satisfy the condition"
            return body | {"fidelity": {}, "absent": reason}
    total = 3 * len(FIDELITY)
    run.progress.step("measure", total, unit="measurements")

    def on_progress(_: str, done: int, __: int) -> None:
        run.check()
        run.progress.advance(done)

    results = fidelity(synth, as_records(test), as_records(train), np.random.default_rng(seed), on_progress)
    return body | {"fidelity": {name: _told(result) for name, result in results.items()}}


def _condition(manifest: dict[str, Any], vocabulary: Vocabulary) -> ResolvedCondition:
    asked = Conditions.model_validate(manifest["request"]["conditions"])
    return vocabulary.resolve(asked.all_of, asked.any_of, asked.none_of)


def _slice(condition: ResolvedCondition, records: Csr) -> Csr:
    return records.take(np.flatnonzero(condition.satisfied_by(records.indptr, records.indices, records.n_codes)))


def _attainment(condition: ResolvedCondition, synth: Records, train: Csr) -> dict[str, Any]:
    """The share of synthetic records that satisfy the condition, with Wilson's 95 % interval."""
    met = int(condition.satisfied_by(synth.indptr, synth.indices, synth.n_codes).sum())
    support = len(_slice(condition, train))
    low, high = wilson(met, len(synth))
    return {
        "attainment": {"value": met / max(len(synth), 1), "low": low, "high": high, "direction": "higher"},
        "support_in_training": shown(support, len(train)),
    }


def _attained(vocabulary: Vocabulary, synth: Records, targets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The share that was asked for and the share that has one of the codes, for each target."""
    told = []
    for target in targets:
        having = vocabulary.resolve([], [target["codes"]], []).satisfied_by(synth.indptr, synth.indices, synth.n_codes)
        told.append({"codes": target["codes"], "asked": target["share"], "attained": float(having.mean())})
    return told


def wilson(met: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's score interval of a proportion."""
    if n == 0:
        return 0.0, 1.0
    p, spread = met / n, 1 + z * z / n
    centre = (p + z * z / (2 * n)) / spread
    half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / spread
    return max(0.0, centre - half), min(1.0, centre + half)


def _told(result: Result) -> dict[str, Any]:
    metric = result.metric
    return {
        "meaning": metric.meaning,
        "direction": metric.direction,
        "bounds": list(metric.bounds),
        "value": asdict(result.value),
        "floor": asdict(result.floor),
        "independent": asdict(result.independent),
    }
