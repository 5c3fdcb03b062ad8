"""Train a generator: dataset in, model bundle out."""

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from sqlalchemy.orm import Session

from ehr.audits import ModelAudit
from ehr.codes.families import families
from ehr.errors import DataError, JobCancelledError, TrainingStopped
from ehr.generators import ResolvedSettings, spec_named
from ehr.generators.auto import Shape
from ehr.generators.config import Config
from ehr.histories import Histories
from ehr.records import Records
from ehr.streams import RecordStream
from model_store import layout
from model_store.bundles import Bundle, model_manifest, save_bundle
from model_store.datasets import StoredDataset
from model_store.repositories import ModelRepository
from model_store.tables import Model
from runtime.logs import place_of
from runtime.settings import Settings
from worker.contract import TrainPayload
from worker.engine.generators import FitRequest, Generator, State, generator_named, history_generator_named
from worker.engine.histories.protocol import HistoryFit, HistoryGenerator
from worker.engine.training import Hooks, TrainingProgress, resolve_device
from worker.execution import JobRun, Outcome
from worker.ranks.parent import fit_together
from worker.tasks.audit import audit
from worker.tasks.checkpoints import Checkpoints, fingerprint_of
from worker.tasks.costs import give_back_memory, measured_costs, measured_history_costs, memory_bytes
from worker.tasks.decide import Decision, decide
from worker.tasks.loading import cdm_of, dataset_of, pack_tensors, plain
from worker.tasks.reference import MOST_PATIENTS, SHARE_OF_TRAINING, Drawn, reference_cohort

log = logging.getLogger(__name__)

Split = TypeVar("Split", Records | RecordStream, Histories)
Fitted = TypeVar("Fitted", Generator, HistoryGenerator)

# Steps between the moments at which a checkpoint may be taken; how often one is kept is a matter of time.
CHECKPOINT_STEPS = 20


def train(run: JobRun) -> Outcome:
    """Load, fit, attack the model, measure what generating will cost, draw the reference cohort, store."""
    give_back_memory()
    held_before = memory_bytes()
    payload = TrainPayload.model_validate(run.claim.payload)
    run.progress.step("load", maximum=1)
    dataset = dataset_of(run.runtime, run.claim.owner, payload.dataset_id)
    shape = Shape(len(dataset.records), len(dataset.vocabulary))
    generator: Generator | HistoryGenerator
    if dataset.histories is None:
        request = _request(run, payload, dataset)
        shape = Shape(len(request.train), shape.codes)
        decision = decide(run, payload, shape, lambda config: replace(request, settings=config))
        run.check()
        begun = time.monotonic()
        generator = _fit(run, payload, dataset, request, decision)
    else:
        decision = Decision(spec_named(payload.generator).resolve(payload.preset, payload.settings, shape))
        begun = time.monotonic()
        generator = _fit_histories(run, payload, dataset, decision.settings)
    took = time.monotonic() - begun
    run.check()
    audited = audit(run, payload, dataset, generator)
    run.check()
    costs = _costs(run, generator.state(), dataset, held_before)
    reference = _reference(run, payload, dataset, generator, took)
    run.progress.step("store", maximum=1)
    outcome = _store(run, payload, dataset, generator.state(), decision.settings, costs, audited, reference)
    resumed = run.claim.checkpoint is not None
    actual = None if resumed else round(time.monotonic() - begun, 1)  # of several attempts nobody has the sum
    outcome.result |= {"predicted_seconds": decision.predicted_seconds, "actual_seconds": actual}
    return outcome


def _request(run: JobRun, payload: TrainPayload, dataset: StoredDataset) -> FitRequest:
    """What is learned from; settings, and where to go on, come later."""
    streams = spec_named(payload.generator).streams
    train_set = (dataset.to_learn_from if streams else partial(dataset.split, "train"))(payload.holdout_share)
    holdout = dataset.split("holdout", payload.holdout_share)
    return FitRequest(
        _not_empty(train_set),
        holdout if len(holdout) else None,
        seed=payload.seed,
        device=run.runtime.settings.device,
        groups=dataset.groups,
        rules=dataset.rules,
        families=families(dataset.vocabulary.codes),
    )


def _fit(
    run: JobRun, payload: TrainPayload, dataset: StoredDataset, request: FitRequest, decision: Decision
) -> Generator:
    checkpoints = _checkpoints(run, payload, dataset, decision.settings)
    whole = replace(
        request,
        settings=_config(decision.settings),
        hooks=_hooks(run, checkpoints, decision),
        checkpoint=checkpoints.newest(),
    )
    processes = _processes(run.runtime.settings, decision.settings, payload.generator)
    if processes > 1:
        return _until_stopped(
            run, lambda: fit_together(processes, payload.generator, whole, checkpoints, run.runtime.settings)
        )
    return _until_stopped(run, lambda: generator_named(payload.generator).fit(whole))


def _processes(settings: Settings, resolved: ResolvedSettings, generator: str) -> int:
    """How many share the training."""
    shared = spec_named(generator).processes
    if shared is None or resolved.config is None:
        return 1
    device = resolve_device(settings.device)
    gpus = torch.cuda.device_count() if device.type == "cuda" and device.index is None else 1
    return settings.train_processes or shared(resolved.config, gpus)


def _fit_histories(
    run: JobRun, payload: TrainPayload, dataset: StoredDataset, settings: ResolvedSettings
) -> HistoryGenerator:
    checkpoints = _checkpoints(run, payload, dataset, settings)
    train_set = _not_empty(dataset.split_histories("train", payload.holdout_share))
    holdout = dataset.split_histories("holdout", payload.holdout_share)
    about_patients = set(train_set.static.indices.tolist())
    at_visits, static = (None, None) if dataset.groups is None else dataset.groups.over_time(about_patients)
    request = HistoryFit(
        train_set,
        holdout if len(holdout) else None,
        _config(settings),
        payload.seed,
        run.runtime.settings.device,
        _hooks(run, checkpoints, Decision(settings)),
        checkpoints.newest(),
        at_visits,
        static,
        dataset.rules,
    )
    return _until_stopped(run, lambda: history_generator_named(payload.generator).fit(request))


def _not_empty(train_set: Split) -> Split:
    if len(train_set) == 0:
        raise DataError("the train split of this dataset is empty")
    return train_set


def _config(settings: ResolvedSettings) -> Config | dict[str, Any]:
    return {} if settings.config is None else settings.config.with_checkpoints(CHECKPOINT_STEPS)


def _checkpoints(run: JobRun, payload: TrainPayload, dataset: StoredDataset, settings: ResolvedSettings) -> Checkpoints:
    # How wide the network is that draws says nothing of the one that learns: trainings of earlier versions go on.
    values = {name: value for name, value in settings.values.items() if name != "drawing_width"}
    known = [dataset.data_hash, json.dumps(values, sort_keys=True), str(payload.seed), payload.generator]
    if dataset.groups is not None:
        known.append(json.dumps(dataset.groups.as_json(dataset.vocabulary.codes)))
    if dataset.rules is not None:
        known.append(json.dumps(dataset.rules.as_json()))
    return Checkpoints(run, fingerprint_of(*known, str(payload.holdout_share)))


def _hooks(run: JobRun, checkpoints: Checkpoints, decision: Decision) -> Hooks:
    hurry_at: float | None = None  # when this attempt should be done with learning

    def on_progress(progress: TrainingProgress) -> None:
        nonlocal hurry_at
        if hurry_at is None:
            run.begin_turn()
            run.progress.step("train", progress.total_steps, progress.step, "batches")
            left, most = 1 - (progress.step - 1) / progress.settles_by, decision.most_seconds
            hurry_at = math.inf if most is None else time.monotonic() + left * most
            run.progress.advance(progress.step, predicted_seconds=decision.predicted_seconds)
        run.progress.advance(progress.step, **plain({"loss": progress.loss, "held_out": progress.held_out}))

    def on_calibration(drawn: int, of: int) -> None:
        if run.progress.current != "calibrate":
            run.progress.step("calibrate", of, unit="drawn")
        run.progress.advance(drawn)

    def should_stop() -> bool:
        return run.should_stop() or run.stop.turn_over.is_set()

    def should_settle() -> bool:
        return hurry_at is not None and time.monotonic() > hurry_at

    return Hooks(on_progress, checkpoints.save, should_stop, should_settle, on_calibration)


def _until_stopped(run: JobRun, fit: Callable[[], Fitted]) -> Fitted:
    try:
        return fit()
    except TrainingStopped:
        run.check()
        run.stop.check_turn()
        raise JobCancelledError("the job was asked to stop") from None


def _costs(run: JobRun, state: State, dataset: StoredDataset, held_before: int | None) -> dict[str, Any] | None:
    """For estimates. A training of hours is not lost because it could not be timed."""
    common_code = int(dataset.records.counts().argmax())  # of patients over time, `records` are visits
    measure = measured_costs if dataset.histories is None else measured_history_costs
    try:
        return measure(state, dataset.vocabulary, common_code, held_before, run.runtime.settings.device)
    except Exception as error:
        log.warning("generating could not be timed", extra={"type": type(error).__name__, "at": place_of(error)})
        return None


def _reference(
    run: JobRun,
    payload: TrainPayload,
    dataset: StoredDataset,
    generator: Generator | HistoryGenerator,
    training_seconds: float,
) -> Drawn:
    settings = run.runtime.settings
    n = settings.reference_records if dataset.histories is None else min(settings.reference_records, MOST_PATIENTS)
    run.progress.step("draw", n, unit="records" if dataset.histories is None else "patients")

    def on_progress(done: int) -> None:
        run.check()
        run.progress.advance(done)

    seconds = max(settings.reference_seconds, SHARE_OF_TRAINING * training_seconds)
    drawn, facts = reference_cohort(generator, dataset, payload.holdout_share, n, seconds, on_progress)
    run.progress.end_with(0 if drawn is None else len(drawn))
    return drawn, facts


def _store(
    run: JobRun,
    payload: TrainPayload,
    dataset: StoredDataset,
    state: State,
    settings: ResolvedSettings,
    costs: dict[str, Any] | None,
    audited: ModelAudit,
    reference: Drawn,
) -> Outcome:
    drawn, facts = reference
    folder = layout.model_folder(payload.model_id, run.claim.attempt)
    run.own_folders.append(folder)
    details = {
        "dataset_id": payload.dataset_id,
        "data_hash": dataset.data_hash,
        "seed": payload.seed,
        "preset": settings.preset,
        "preset_reason": settings.preset_reason,
        "settings": plain(settings.values),
        "test_share": dataset.test_share,
        "holdout_share": dataset.holdout_share if payload.holdout_share is None else payload.holdout_share,
        "curve": plain(state.config.get("curve", [])),
        "costs": costs,
        "reference": plain(facts),
        "audit": plain(audited.model_dump(mode="json")),
    }
    curves = {"lab_curves": dataset.lab_curves} if dataset.lab_curves else {}
    manifest = model_manifest(plain(state.config), dataset.vocabulary, **details, **curves)
    cdm = cdm_of(run.runtime, run.claim.owner, payload.dataset_id)
    bundle = Bundle(pack_tensors(state.tensors), manifest, cdm)
    manifest_hash = save_bundle(run.runtime.store, folder, bundle, drawn)
    size = run.runtime.store.size_of(folder)

    def add_rows(session: Session) -> None:
        ModelRepository(session).add(
            Model(
                id=payload.model_id,
                owner=run.claim.owner,
                name=payload.name,
                job_id=run.claim.job_id,
                dataset_id=payload.dataset_id,
                generator=payload.generator,
                prefix=folder,
                manifest_hash=manifest_hash,
                n_codes=len(dataset.vocabulary),
                bytes=size,
                details=details | {"vocabulary_hash": dataset.vocabulary.hash},
            )
        )

    result = {"model_id": payload.model_id, "preset": details["preset"], "preset_reason": details["preset_reason"]}
    return Outcome(result, add_rows, keep=[folder])
