"""What `auto` says it will take, and what it takes: six data sets of different shapes.

python -m benchmarks.auto [--quick] [--json FILE] [--max-minutes M]

A training here is what a training job does after loading: learning, the audit, and the reference cohort. With
--max-minutes each must stay within that time.
"""

import time
from typing import NamedTuple

import numpy as np

from benchmarks._harness import Figures, console, options, show
from benchmarks._shapes import DataShape
from ehr.generators.auto import Shape
from ehr.generators.d3pm import D3PM, D3PMConfig
from ehr.records import Records
from worker.contract import TrainPayload
from worker.engine.audit import audit_model
from worker.engine.generators import FitRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.training import Hooks, TrainingProgress
from worker.tasks.decide import Reference, decided
from worker.tasks.reference import SHARE_OF_TRAINING, draw

SHAPES = (
    DataShape(2_000, 100, 3),
    DataShape(5_000, 400, 8),
    DataShape(5_000, 1_000, 16),
    DataShape(10_000, 200, 5),
    DataShape(10_000, 2_000, 12),
    DataShape(20_000, 500, 8),
)
QUICK = (DataShape(400, 30, 3), DataShape(600, 60, 6))
QUICK_EPOCHS = 4
REFERENCE_RECORDS, REFERENCE_SECONDS = 200_000, 20.0
HOLDOUT, UNSEEN = 10, 5  # one of so many records


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--max-minutes", type=float, metavar="M", help="the time that each training may take")
    arguments = parser.parse_args()
    figures, rows, factors, shares = Figures(), [], [], []
    seconds = 1.0 if arguments.quick else REFERENCE_SECONDS
    for shape in QUICK if arguments.quick else SHAPES:
        console.print(f"training on {shape.name}", highlight=False)
        changes = {"training": {"epochs": QUICK_EPOCHS}} if arguments.quick and not arguments.max_minutes else {}
        took = _predicted_and_actual(shape, changes, seconds, arguments.max_minutes)
        predicted, actual, config = took.predicted, took.actual, took.config
        factors.append(max(predicted / actual, actual / predicted))
        shares.append(0.0 if arguments.max_minutes is None else actual / 60 / arguments.max_minutes)
        told = f"{config.training.epochs} x {config.denoiser.width}"
        made = f"{took.epochs:.0f}, {took.learning:.0f} s"
        rows.append([shape.name, told, made, f"{predicted:.0f} s", f"{actual:.0f} s", f"{predicted / actual:.2f}"])
    header = ["data", "epochs x width", "epochs made, learning", "predicted", "actual", "predicted / actual"]
    show("auto", header, rows)
    figures.add("auto.worst_factor", max(factors), "predicted over actual, or the other way round")
    if arguments.max_minutes is not None:
        figures.add("auto.longest_share", max(shares), "of the time that a training may take")
    figures.finish(arguments.json)


class Took(NamedTuple):
    """Seconds that were predicted and taken, in all and of learning, and the epochs that were made of those of the
    settings."""

    predicted: float
    actual: float
    learning: float
    epochs: float
    config: D3PMConfig


def _predicted_and_actual(
    shape: DataShape, changes: dict[str, dict[str, int]], reference_seconds: float, minutes: float | None
) -> Took:
    """Seconds from the first batch to the stored model, without storing."""
    records = shape.draw(0)
    held, train = records.take(np.arange(0, len(records), HOLDOUT)), _others(records)
    payload = TrainPayload(model_id="m", name="m", dataset_id="d", settings=changes, max_minutes=minutes)
    settings = D3PM.resolve(None, changes, Shape(len(train), train.n_codes))
    reference = Reference(REFERENCE_RECORDS, reference_seconds)
    decision = decided(payload, settings, lambda config: FitRequest(train, held, config), reference)
    config = D3PMConfig(**decision.settings.values)
    assert decision.predicted_seconds is not None
    begun = time.perf_counter()
    deadline = begun + (decision.most_seconds or float("inf"))
    steps = list[TrainingProgress]()
    hooks = Hooks(on_progress=steps.append, should_settle=lambda: time.perf_counter() > deadline)
    generator = D3PMGenerator.fit(FitRequest(train, held, config, hooks=hooks))
    learning = time.perf_counter() - begun
    audit_model(generator, train, shape.draw(1, len(records) // UNSEEN), np.random.default_rng(0))
    most = max(reference_seconds, SHARE_OF_TRAINING * learning)
    draw(generator, train.n_codes, REFERENCE_RECORDS, most, lambda done: None)
    made = sum(each.step <= each.settles_by for each in steps) / steps[0].settles_by * config.training.epochs
    return Took(decision.predicted_seconds, time.perf_counter() - begun, learning, made, config)


def _others(records: Records) -> Records:
    return records.take(np.flatnonzero(np.arange(len(records)) % HOLDOUT))


if __name__ == "__main__":
    main()
