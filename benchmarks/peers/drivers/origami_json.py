"""ORIGAMI of origami-ml: a record is a JSON object with a list of codes, the most common first.

It trains for a number of epochs, so a few steps are timed first, and it gets as many epochs as fit, or a part of the
records where not even one does.
"""

import sys
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from files import read, tell, timed, write_sets
from origami import OrigamiConfig, OrigamiPipeline, TrainingConfig
from origami.training import TrainerCallback

TRIAL_STEPS, WARM_UP = 12, 2
TRIED = 64  # records that are drawn first, to see how long the others would take
MOST_DRAWING = 600.0  # seconds: who is slower draws fewer records
CODES = "codes"
BATCH = TrainingConfig().batch_size


class Enough(Exception):
    """A few steps have been timed."""


class Clock(TrainerCallback):
    """Notes when each step ended, and ends a trial."""

    def __init__(self, most: int) -> None:
        self.times: list[float] = []
        self.most = most

    def on_batch_end(self, trainer: Any, state: Any, payload: Any) -> None:
        self.times.append(time.perf_counter())
        if len(self.times) >= self.most:
            raise Enough


def main(folder: Path) -> None:
    asked, records = read(folder)
    told: dict[str, Any] = {"version": version("origami-ml")}
    place = records.by_commonness()
    rows = [
        {CODES: [str(code) for code in sorted(records.of(row), key=place.__getitem__)]} for row in range(len(records))
    ]
    step = _step_seconds(rows)
    steps = max(int(asked.seconds / step), 1)
    epochs = max(steps // max(len(rows) // BATCH, 1), 1)
    order = np.random.default_rng(asked.seed).permutation(len(rows))[: steps // epochs * BATCH]
    told |= {"epochs": epochs, "learned_from": len(order)}
    pipeline = OrigamiPipeline(OrigamiConfig())
    with timed(told, "train_seconds"):
        pipeline.fit([rows[row] for row in order], epochs=epochs, callbacks=[])
    trial: dict[str, Any] = {}
    with timed(trial, "seconds"):
        pipeline.generate(num_samples=TRIED, seed=asked.seed)
    n = min(asked.records, max(int(MOST_DRAWING / trial["seconds"]) * TRIED, TRIED))
    with timed(told, "sampling_seconds"):
        drawn = pipeline.generate(num_samples=n, batch_size=256, seed=asked.seed + 1)
    sets = [{int(code) for code in each.get(CODES) or [] if str(code).isdigit()} for each in drawn]
    write_sets(folder / "cohort.npz", sets, records.n_codes)
    tell(folder, told | {"records": n})


def _step_seconds(rows: list[dict[str, list[str]]]) -> float:
    clock = Clock(TRIAL_STEPS)
    with suppress(Enough):
        OrigamiPipeline(OrigamiConfig()).fit(rows[: (TRIAL_STEPS + 2) * BATCH], epochs=1, callbacks=[clock])
    times = clock.times[WARM_UP:]
    return (times[-1] - times[0]) / (len(times) - 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
