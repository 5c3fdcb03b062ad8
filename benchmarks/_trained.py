"""A training that takes long, once: its model is kept in a folder, and a second run starts from it."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.torch import load_file, save_file

from benchmarks._harness import progress_bar
from ehr.codes.families import families
from ehr.groups import find_groups
from ehr.records import Records
from worker.engine.generators import FitRequest, State
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.training import Hooks, TrainingProgress
from worker.ingestion.rules import find_rules

REACHED = 29.0  # nats of held-out records; how soon they are reached is told


class Took(NamedTuple):
    """Seconds of a training, and until held-out records had REACHED nats; not a number if they never had or nobody
    looked."""

    seconds: float
    to_reach: float


def request_of(train: Records, codes: Sequence[str], settings: dict[str, Any], seed: int = 0) -> FitRequest:
    """What to learn from, with a part held out, and with groups, rules and families as the service finds them."""
    order = np.random.default_rng(0).permutation(len(train))
    holdout, rest = train.take(order[: len(train) // 20]), train.take(order[len(train) // 20 :])
    rules = find_rules(rest, codes, find_groups(rest, codes))
    return FitRequest(
        rest,
        holdout,
        settings,
        seed,
        families=families(codes),
        groups=rules.groups if len(rules.groups) else None,
        rules=rules,
    )


def trained(
    name: str,
    settings: dict[str, Any],
    train: Records,
    codes: Sequence[str],
    work: Path | None,
    seed: int = 0,
    most_seconds: float = math.inf,
) -> tuple[D3PMGenerator, Took]:
    """The generator and what its training took; from `work` if an earlier run left it there. After `most_seconds` it
    settles and ends."""
    weights, notes = (None, None) if work is None else (work / f"{name}.safetensors", work / f"{name}.json")
    if weights is not None and notes is not None and notes.exists():
        kept = json.loads(notes.read_text())
        generator = D3PMGenerator.from_state(State(load_file(weights), kept["config"]))
        return generator, Took(kept["seconds"], kept.get("to_reach") or math.nan)
    begun, reached = time.perf_counter(), list[float]()
    with progress_bar(f"train {name}") as advance:

        def on_progress(progress: TrainingProgress) -> None:
            if progress.held_out is not None and progress.held_out <= REACHED and not reached:
                reached.append(time.perf_counter() - begun)
            advance(progress.step, progress.total_steps)

        request = request_of(train, codes, settings, seed)
        deadline = time.perf_counter() + most_seconds
        hooks = Hooks(on_progress=on_progress, should_settle=lambda: time.perf_counter() > deadline)
        generator = D3PMGenerator.fit(replace(request, hooks=hooks))
    took = Took(time.perf_counter() - begun, reached[0] if reached else math.nan)
    if weights is not None and notes is not None:
        state = generator.state()
        weights.parent.mkdir(parents=True, exist_ok=True)
        save_file({key: value.contiguous() for key, value in state.tensors.items()}, weights)
        told = {"config": state.config, "seconds": took.seconds, "to_reach": reached[0] if reached else None}
        notes.write_text(json.dumps(told))
    return generator, took
