"""The published generators: their sizes are the published ones, they learn, and they know more than prevalences."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from worker.engine.baseline_config import BASELINE_CONFIGS, EmrWganConfig, MedWganConfig
from worker.engine.errors import ConfigError, DataError, TrainingError
from worker.engine.generators import FitRequest, SampleRequest, generator_named
from worker.engine.generators.baselines import BASELINES, Baseline
from worker.engine.generators.baselines.wgan import gradient_penalty
from worker.engine.metrics import fidelity
from worker.engine.population import simulated_population
from worker.engine.records import Records

N = 1000  # codes, for the sizes


@dataclass(frozen=True)
class Trial:
    """A baseline, settings with which it learns the simulated population in seconds, and what it then does better
    than codes drawn independently."""

    name: str
    settings: dict[str, Any]
    beats_on: tuple[str, ...]
    records: int = 10_000
    sizes: dict[str, int] = field(default_factory=dict)  # weights of the published networks at N codes, by part


TRIALS = [
    Trial(
        "med-wgan",
        {"epochs": 30, "pretrain_share": 0.2, "batch_size": 100, "critic_steps": 2},
        ("mcad",),
    ),
    Trial(
        "emr-wgan",
        {"epochs": 30, "batch_size": 100, "learning_rate": 5e-4},
        ("mcad",),
    ),
]
NAMES = [trial.name for trial in TRIALS]


def population(n: int, seed: int = 0) -> Records:
    return simulated_population().sample(n, np.random.default_rng(seed))


@cache
def trained(name: str) -> Baseline:
    trial = next(trial for trial in TRIALS if trial.name == name)
    made = generator_named(name).fit(FitRequest(population(trial.records), None, trial.settings))
    assert isinstance(made, Baseline)
    return made


def test_every_baseline_has_settings_that_need_no_mathematics() -> None:
    assert {baseline.name: baseline.Settings for baseline in BASELINES} == BASELINE_CONFIGS


@pytest.mark.parametrize("name", NAMES)
def test_samples_beat_independent_codes(name: str) -> None:
    trial = next(trial for trial in TRIALS if trial.name == name)
    drawn = trained(name).sample(SampleRequest(5000, seed=1))
    measured = fidelity(
        drawn, population(5000, seed=2), population(trial.records), np.random.default_rng(0), names=["cmd", "mcad"]
    )
    for metric in trial.beats_on:
        value, independent = measured[metric].value.value, measured[metric].independent.value
        assert value is not None and independent is not None
        assert value < independent, metric
