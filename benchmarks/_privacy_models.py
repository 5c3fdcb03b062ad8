"""The models that benchmarks.privacy attacks: the same training before and after restraint, and overfitted ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._harness import load_long, progress_bar, subset
from benchmarks._trained import trained
from ehr.codes.families import families
from ehr.generators.d3pm import PRESETS, D3PMConfig, SparseConfig, TrainingConfig
from ehr.records import Records
from worker.engine.generators import FitRequest, State
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.restraint import restrain
from worker.engine.population import simulated_population

MAY_NOT_BE_ATTACKED = ("nhds-adult",)  # its terms forbid experiments in re-identification
SMALL_RECORDS = 8_000


@dataclass(frozen=True)
class Split:
    """Who the model has seen (members), who chose among its weights (holdout), and who it has never met (test)."""

    members: Records
    holdout: Records
    test: Records
    vocabulary: tuple[str, ...]
    label: str
    may_be_attacked: bool = True


def load(folder: Path | None, quick: bool) -> Split:
    """The split that `trained` makes."""
    if folder is None:
        population = simulated_population()
        train, test = (
            population.sample(60_000, np.random.default_rng(0)),
            population.sample(20_000, np.random.default_rng(1)),
        )
        vocabulary, label = population.vocabulary, "simulated"
    else:
        train, test, codes = load_long(folder)
        vocabulary, label = tuple(codes), folder.name
    if quick:
        train, test = subset(train, 1_200), subset(test, 800)
    order = np.random.default_rng(0).permutation(len(train))
    held = len(train) // 20
    may_be_attacked = folder is None or folder.resolve().name not in MAY_NOT_BE_ATTACKED
    return Split(train.take(order[held:]), train.take(order[:held]), test, vocabulary, label, may_be_attacked)


def before_and_after(split: Split, work: Path | None, quick: bool) -> tuple[dict[str, D3PMGenerator], int | None]:
    """Preset `best` without restraint, the same as training would end it (restrained, made narrower, calibrated), and
    how strongly it was restrained."""
    settings = _without_restraint(PRESETS["fast" if quick else "best"], epochs=2 if quick else None)
    whole = Records.concatenate([split.holdout, split.members])
    # `trained` splits a permutation of what it is given: give it back in the order from which it makes this split
    order = np.random.default_rng(0).permutation(len(whole))
    unsorted = whole.take(np.argsort(order))
    name = "best" if split.label != "simulated" else "best-simulated"
    before, _ = trained(name, settings, unsorted, split.vocabulary, work)
    state = before.state()
    best = PRESETS["best"]
    settings = state.config["settings"] | {"calibration_rounds": best.calibration_rounds}
    after = D3PMGenerator.from_state(State(state.tensors, state.config | {"settings": settings}))
    kin = families(split.vocabulary)
    strength = restrain(after, split.members, split.holdout, families=kin, drawing_width=best.drawing_width)
    return {"before": before, "after": after}, strength


def _without_restraint(config: D3PMConfig, epochs: int | None = None) -> dict[str, Any]:
    settings = config.model_dump()
    changed = {"restrain_rare": False} | ({} if epochs is None else {"epochs": epochs})
    return settings | {"training": settings["training"] | changed, "calibration_rounds": 0, "drawing_width": None}


def overfitted(split: Split, seeds: range, quick: bool) -> Iterator[tuple[D3PMGenerator, Records, Records]]:
    """(model, the people it was trained on, as many others): dropout off, ten times the epochs, a tenth of the data,
    and nothing of what was learned restrained.

    Preset `fast` in a small network, so that twenty can be trained in minutes.
    """
    epochs = 10 * PRESETS["fast"].training.epochs
    settings = D3PMConfig(
        denoiser=SparseConfig(width=64, blocks=1, dropout=0.0, input_dropout=0.0),
        training=TrainingConfig(epochs=10 if quick else epochs, patience=None, restrain_rare=False),
    )
    size = min(SMALL_RECORDS // 10, len(split.members) // 4)
    with progress_bar("overfitted models") as advance:
        for done, seed in enumerate(seeds, start=1):
            rows = np.random.default_rng(seed).permutation(len(split.members))
            seen, others = split.members.take(rows[:size]), split.members.take(rows[size : 2 * size])
            yield D3PMGenerator.fit(FitRequest(seen, None, settings, seed=seed)), seen, others
            advance(done, len(seeds))


def restrained(model: D3PMGenerator, seen: Records, vocabulary: tuple[str, ...]) -> D3PMGenerator:
    """The same model as training would have left it: restrained, by its training records alone."""
    same = D3PMGenerator.from_state(model.state())
    restrain(same, seen, None, families=families(vocabulary))
    return same


def reference_model(split: Split, half: Records, quick: bool) -> D3PMGenerator:
    """A model of other people of the same kind, for the mask attack."""
    settings = _without_restraint(PRESETS["fast"], epochs=2 if quick else None)
    return D3PMGenerator.fit(FitRequest(half, split.holdout, settings, seed=1))
