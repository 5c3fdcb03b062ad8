"""Trainings by rule: they say how long they will take, fit into a given time, and attempts keep to what was decided."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ehr.generators.auto import NARROW, Shape
from ehr.generators.config import Config
from ehr.generators.d3pm import PRESETS, D3PMConfig, SparseConfig
from ehr.records import Records
from model_store.blobs.file import FileStore
from model_store.ids import DATASET, JOB, MODEL, new_id
from worker.contract import TrainPayload
from worker.engine.generators import FitRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.training import Hooks
from worker.engine.training.lessons import MOST
from worker.tasks import decide as deciding
from worker.tasks.decide import MARGIN, Decision, Reference, decide, whole_job
from worker.tasks.pace import LESSON, LOOKS_TO_DRAW, Pace, pace_of

RECORDS = Records.from_sets([{i % 5, 5 + i % 3} for i in range(100_000)], 8)
SHAPE = Shape(len(RECORDS), 8)
SLOW, FAST = Pace(0.1, 512, 1e-5, 20.0, kept_look=1e-3), Pace(0.01, 512, 1e-6, 2.0, kept_look=1e-3)


class Attempts:
    """A job whose machine is as fast as told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = SimpleNamespace(reference_seconds=20.0, reference_records=200_000)
        runtime = SimpleNamespace(store=FileStore(f"file://{folder}"), settings=settings)
        self.run: Any = SimpleNamespace(runtime=runtime, claim=SimpleNamespace(job_id=new_id(JOB)))
        self.measured, self._patch = 0, monkeypatch

    def decide(self, pace: Pace, narrow: Pace | None = None, **options: Any) -> Decision:
        def measure(request: FitRequest) -> Pace:
            self.measured += 1
            config = request.settings
            assert isinstance(config, D3PMConfig) and isinstance(config.denoiser, SparseConfig)
            return narrow if narrow is not None and config.denoiser.width == NARROW else pace

        self._patch.setattr(deciding, "pace_of", measure)
        payload = TrainPayload(model_id=new_id(MODEL), name="m", dataset_id=new_id(DATASET), **options)
        return decide(self.run, payload, SHAPE, _request)


def _request(config: Config) -> FitRequest:
    return FitRequest(RECORDS, None, config)


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempts:
    return Attempts(tmp_path, monkeypatch)


def config_of(decision: Decision) -> D3PMConfig:
    assert isinstance(decision.settings.config, D3PMConfig)
    return decision.settings.config


def test_records_to_estimate_from_take_no_longer_than_to_draw_them() -> None:
    config, sizes, reference = D3PMConfig(), (5_000, 0), Reference(200_000, 20.0)
    seconds = [whole_job(Pace(0.01, 64, 1e-6, 2.0, kept_look=look), config, sizes, reference) for look in (1e-3, 1e-6)]
    drawing = 200_000 * LOOKS_TO_DRAW * 1e-6
    assert seconds[0] - seconds[1] == pytest.approx(20.0 - drawing, abs=0.2)


def test_without_a_limit_the_machine_decides_about_the_forecast_alone(attempts: Attempts, tmp_path: Path) -> None:
    decision = attempts.decide(SLOW)
    epochs = PRESETS["best"].training.epochs
    assert config_of(decision).training.epochs == epochs
    learning = epochs * (100_000 // 512) * 0.1
    assert decision.predicted_seconds == pytest.approx((learning + MOST * 0.1 * LESSON) * 1.1 + 20, rel=0.02)
    assert decision.most_seconds is None
    assert decision.settings.preset_reason == "by rule, for about 100,000 records with 8 codes"


def test_a_training_is_made_to_fit_into_its_time(attempts: Attempts) -> None:
    decision = attempts.decide(SLOW, max_minutes=10.0)
    assert decision.predicted_seconds is not None and decision.predicted_seconds <= MARGIN * 600
    assert decision.predicted_seconds > 0.7 * MARGIN * 600  # and uses it
    assert (
        10 < config_of(decision).training.epochs < PRESETS["best"].training.epochs
        and config_of(decision).denoiser.width > NARROW
    )
    assert "made shorter for 10 minutes" in (decision.settings.preset_reason or "")


def test_where_hardly_an_epoch_fits_the_network_is_narrower(attempts: Attempts) -> None:
    decision = attempts.decide(SLOW, narrow=FAST, max_minutes=2.5)
    assert config_of(decision).denoiser.width == NARROW and config_of(decision).training.epochs > 8
    assert decision.predicted_seconds is not None and decision.predicted_seconds <= MARGIN * 150


def test_one_epoch_is_trained_whatever_it_takes(attempts: Attempts) -> None:
    assert config_of(attempts.decide(Pace(9.0, 512, 1e-3, 9.0), max_minutes=0.5)).training.epochs == 1


def test_a_later_attempt_keeps_what_the_first_one_decided(attempts: Attempts) -> None:
    """On another machine it would decide otherwise, and its checkpoint would be of another training."""
    first = attempts.decide(SLOW, max_minutes=10.0)
    again = attempts.decide(FAST, max_minutes=10.0)
    assert attempts.measured == 1
    assert again == first


def test_an_unreadable_plan_is_made_anew(attempts: Attempts) -> None:
    job = attempts.run.claim.job_id
    attempts.run.runtime.store.write(f"checkpoints/{job}/plan.json", b"{}")
    assert attempts.decide(SLOW).predicted_seconds is not None


def test_changes_by_hand_stay(attempts: Attempts) -> None:
    changes = {"denoiser": {"dropout": 0.33, "width": 128}}
    found = config_of(attempts.decide(SLOW, max_minutes=10.0, settings=changes)).denoiser
    assert isinstance(found, SparseConfig) and (found.dropout, found.width) == (0.33, 128)


@pytest.mark.parametrize("options", [{"preset": "fast"}, {"generator": "independent"}])
def test_what_follows_no_rule_is_not_measured(attempts: Attempts, options: dict[str, Any]) -> None:
    assert attempts.decide(SLOW, **options).predicted_seconds is None
    assert attempts.measured == 0


# --- the engine's side


SMALL = {"timesteps": 20, "denoiser": {"kind": "sparse", "width": 8, "blocks": 1}}


def small(hooks: Hooks, epochs: int = 10) -> FitRequest:
    some = RECORDS.take(np.arange(640))
    settings = SMALL | {"training": {"epochs": epochs, "settle_share": 0.2, "batch_size": 64}}
    return FitRequest(some, RECORDS.take(np.arange(100)), settings, hooks=hooks)


def test_a_few_batches_are_timed_and_nothing_is_kept_of_them() -> None:
    pace = pace_of(small(Hooks(), epochs=1000))
    assert pace.batch == 64 and pace.step > 0 and pace.look > 0 and pace.audit > 0
    config = D3PMConfig(**(SMALL | {"training": {"epochs": 40}}))
    twice = D3PMConfig(**(SMALL | {"training": {"epochs": 80, "evaluate_every": 6}}))
    assert pace.training(twice, 640, 100) == pytest.approx(2 * pace.training(config, 640, 100), rel=0.5)


@pytest.mark.parametrize(("up", "steps"), [(lambda: False, 100), (lambda: True, 20)])
def test_a_training_whose_time_is_up_settles_and_ends(up: Callable[[], bool], steps: int) -> None:
    seen: list[int] = []
    hooks = Hooks(on_progress=lambda progress: seen.append(progress.step), should_settle=up)
    D3PMGenerator.fit(small(hooks))
    assert len(seen) == steps and seen[-1] == 100  # 10 epochs of 10 batches, the last two of which settle
