"""What a training by rule is to be: its settings, how long it will take, and how it stays within the time it may take.

A few batches are timed first, on the machine and the data that will be trained on. What was decided is kept beside the
checkpoints: a later attempt trains on as the first one meant to, however fast its own machine is.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ehr.errors import StoreError
from ehr.generators import ResolvedSettings, spec_named
from ehr.generators.auto import Shape, narrowed, shortened
from ehr.generators.config import Config
from ehr.generators.d3pm import D3PMConfig
from model_store import layout
from model_store.blobs import BlobStore
from worker.contract import TrainPayload
from worker.engine.generators import FitRequest
from worker.execution import JobRun
from worker.tasks.pace import Pace, pace_of
from worker.tasks.reference import SHARE_OF_TRAINING

log = logging.getLogger(__name__)
FORMAT, VERSION = "ehr-d3pm training plan", 1
MARGIN = 0.85  # of the time that may be taken; the rest is for a machine that becomes busy
LEAST_LEARNING = 0.4  # of the time that is left for training and correcting what it draws, for learning from records
FEWEST_EPOCHS = 8  # a network that would have fewer is made narrower
RequestOf = Callable[[Config], FitRequest]


class Reference(NamedTuple):
    """What is drawn once, to estimate from, at most."""

    records: int
    seconds: float


@dataclass(frozen=True)
class Decision:
    """Settings, and what the training with them should take."""

    settings: ResolvedSettings
    predicted_seconds: float | None = None  # from the first batch to the stored model; None: nothing was measured
    most_seconds: float | None = None  # of learning from records alone; None: as many as it takes


def decide(run: JobRun, payload: TrainPayload, shape: Shape, request_of: RequestOf) -> Decision:
    """`request_of`: what would be trained with these settings."""
    spec = spec_named(payload.generator)
    settings = spec.resolve(payload.preset, payload.settings, shape)
    if not spec.follows_rule(payload.preset) or not isinstance(settings.config, D3PMConfig):
        return Decision(settings)
    store, key = run.runtime.store, f"{layout.checkpoint_folder(run.claim.job_id)}/plan.json"
    kept = _kept(store, key)
    if kept is None:
        limits = run.runtime.settings
        reference = Reference(limits.reference_records, limits.reference_seconds)
        decision = decided(payload, settings, request_of, reference)
        try:
            store.write(key, json.dumps(_stored(decision), sort_keys=True).encode())
        except StoreError:  # another attempt, which was taken for dead, was quicker
            log.warning("the plan of this training was not kept")
        kept = _kept(store, key) or _stored(decision)
    config = type(settings.config)(**kept["settings"])
    resolved = ResolvedSettings(config.model_dump(), config, settings.preset, kept["reason"])
    return Decision(resolved, kept["predicted_seconds"], kept["most_seconds"])


def _kept(store: BlobStore, key: str) -> dict[str, Any] | None:
    """What an earlier attempt decided; None if there was none, or its version is not known here."""
    try:
        kept: dict[str, Any] = json.loads(store.read(key)) if store.exists(key) else {}
    except (StoreError, ValueError):
        return None
    return kept if (kept.get("format"), kept.get("version")) == (FORMAT, VERSION) else None


def _stored(decision: Decision) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "settings": decision.settings.values,
        "reason": decision.settings.preset_reason,
        "predicted_seconds": decision.predicted_seconds,
        "most_seconds": decision.most_seconds,
    }


def decided(payload: TrainPayload, settings: ResolvedSettings, request_of: RequestOf, reference: Reference) -> Decision:
    config = settings.config
    assert isinstance(config, D3PMConfig)
    request = request_of(config)
    sizes = len(request.train), 0 if request.holdout is None else len(request.holdout)
    pace = pace_of(request)
    if payload.max_minutes is None:
        return Decision(settings, whole_job(pace, config, sizes, reference))
    within = MARGIN * 60 * payload.max_minutes
    # what comes after learning is paid from the same time, but learning has half of it in any case
    allowed = max((within - pace.audit - reference.seconds) / (1 + SHARE_OF_TRAINING), within / 2)
    chosen, pace = fitted(allowed, config, pace, sizes, request_of)
    spec, reason = spec_named(payload.generator), settings.preset_reason
    if chosen is not config:
        reason = f"{reason}, made shorter for {payload.max_minutes:g} minutes"
    settings = spec.changed(chosen, payload.settings, settings.preset, reason)
    learning = max(allowed - pace.ending(chosen, sizes[0]), LEAST_LEARNING * allowed) / MARGIN
    return Decision(settings, whole_job(pace, chosen, sizes, reference), round(learning, 1))


def whole_job(pace: Pace, config: D3PMConfig, sizes: tuple[int, int], reference: Reference) -> float:
    """Seconds of learning, of the attacks after it, and of drawing records to estimate from."""
    learning = pace.expected(config, *sizes)
    drawing = min(max(reference.seconds, SHARE_OF_TRAINING * learning), pace.drawing(reference.records))
    return round(learning + pace.audit + drawing, 1)


def fitted(
    allowed: float, config: D3PMConfig, pace: Pace, sizes: tuple[int, int], request_of: RequestOf
) -> tuple[D3PMConfig, Pace]:
    """The settings with as many epochs as fit into so many seconds, one at least, and their pace."""
    if pace.training(config, *sizes) <= allowed:
        return config, pace
    epochs = _most_epochs(allowed, config, pace, sizes)
    narrow = narrowed(config)
    if epochs < FEWEST_EPOCHS and narrow is not config:
        config, pace = narrow, pace_of(request_of(narrow))
        epochs = _most_epochs(allowed, config, pace, sizes)
    return shortened(config, epochs), pace


def _most_epochs(allowed: float, config: D3PMConfig, pace: Pace, sizes: tuple[int, int]) -> int:
    fits = (n for n in range(config.training.epochs, 0, -1) if pace.training(shortened(config, n), *sizes) <= allowed)
    return next(fits, 1)
