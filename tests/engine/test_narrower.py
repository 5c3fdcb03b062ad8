"""A narrower network takes the place of the trained one: it says the same, draws, and its lessons survive a stop."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from ehr.errors import StateError, TrainingStopped
from ehr.generators.d3pm import PRESETS, D3PMConfig, SparseConfig
from ehr.groups import Group, Groups
from ehr.records import Records
from worker.engine.checkpoints import Checkpoint
from worker.engine.denoisers import SparseDenoiser
from worker.engine.generators import FitRequest, SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.groups import GroupTable
from worker.engine.noise import HIDDEN
from worker.engine.population import simulated_population
from worker.engine.training import Hooks, TrainingProgress
from worker.engine.training.lessons import MOST, TEACHER, Lessons, divergence, plan_of_lessons
from worker.engine.training.loop import Plan

SETTINGS: dict[str, Any] = {
    "timesteps": 100,
    "denoiser": {"kind": "sparse", "width": 64, "blocks": 2, "common_codes": 16},
    "drawing_width": 32,
    "calibration_rounds": 0,
    "training": {"epochs": 12, "batch_size": 50, "warmup_steps": 5, "restrain_rare": False, "checkpoint_every": 10},
}
STEPS, LESSONS = 12 * 20, 2 * 20


def population(n: int, seed: int = 0) -> Records:
    return simulated_population().sample(n, np.random.default_rng(seed))


def fit(settings: dict[str, Any] = SETTINGS, **more: Any) -> D3PMGenerator:
    return D3PMGenerator.fit(FitRequest(population(1000), population(200, seed=1), settings, seed=3, **more))


@dataclass
class Taught:
    """A generator with its narrower network, and what was told and kept on the way."""

    generator: D3PMGenerator
    told: list[TrainingProgress]
    kept: list[Checkpoint]


@pytest.fixture(scope="module")
def taught() -> Taught:
    told, kept = list[TrainingProgress](), list[Checkpoint]()
    return Taught(fit(hooks=Hooks(told.append, kept.append)), told, kept)


@pytest.fixture
def narrow(taught: Taught) -> D3PMGenerator:
    return taught.generator


def test_it_says_what_the_wide_one_says(taught: Taught, narrow: D3PMGenerator) -> None:
    unseen = population(1000, seed=2)
    wide = D3PMGenerator(narrow.config.model_copy(update={"drawing_width": None}), narrow.prevalence, narrow.sizes)
    untrained = wide.held_out_elbo(unseen, draws=2).value
    wide.denoiser.load_state_dict(taught.kept[-1].under(TEACHER))
    says, should = (each.held_out_elbo(unseen, draws=2).value for each in (narrow, wide))
    assert should < untrained - 1.0 and abs(says - should) < 0.1 * (untrained - should)


def test_lessons_bring_it_closer_than_it_begins(taught: Taught, narrow: D3PMGenerator) -> None:
    unseen = population(200, seed=2)
    wide = D3PMGenerator(narrow.config.model_copy(update={"drawing_width": None}), narrow.prevalence, narrow.sizes)
    wide.denoiser.load_state_dict(taught.kept[-1].under(TEACHER))
    shadow = narrow.network(narrow.config.kept_denoiser, 0)
    assert isinstance(wide.denoiser, SparseDenoiser) and isinstance(shadow, SparseDenoiser)
    Lessons(shadow, wide.denoiser, narrow.noise, population(500), torch.device("cpu"))
    x = torch.full((len(unseen), narrow.noise.n_codes), HIDDEN, dtype=torch.uint8)
    x[:, :50] = torch.from_numpy(unseen.to_dense())[:, :50]
    t, size = torch.full((len(x),), 80), torch.from_numpy(unseen.sizes())
    with torch.no_grad():
        told, begun, learned = (each.eval()(x, t, size) for each in (wide.denoiser, shadow, narrow.denoiser))
    off = [divergence(told, said, x == HIDDEN, narrow.noise.groups).mean() for said in (begun, learned)]
    assert off[1] < 0.8 * off[0]


def test_it_is_the_one_that_is_kept_and_draws(narrow: D3PMGenerator) -> None:
    state = narrow.state()
    assert state.tensors["denoiser/norm.weight"].shape == (32,)
    settings = state.config["settings"]  # that earlier versions can read, too
    assert settings["denoiser"]["width"] == 32 and "drawing_width" not in settings
    drawn = [each.sample(SampleRequest(300)).to_dense() for each in (narrow, D3PMGenerator.from_state(state))]
    assert np.array_equal(*drawn)


def test_models_from_before_there_were_narrower_ones_are_read() -> None:
    config = D3PMConfig(denoiser=SparseConfig(width=256), drawing_width=None)
    state = D3PMGenerator(config, torch.full((5,), 0.2), torch.full((6,), 1 / 6)).state()
    assert D3PMGenerator.from_state(state).state().tensors["denoiser/norm.weight"].shape == (256,)


def test_lessons_are_told_as_the_last_steps_of_the_training(taught: Taught) -> None:
    last = taught.told[-1]
    assert (last.step, last.total_steps, last.settles_by) == (STEPS + LESSONS, STEPS + LESSONS, STEPS)
    assert [each.step for each in taught.told] == list(range(1, STEPS + LESSONS + 1))
    assert last.loss == taught.generator.curve[-1]["loss"]  # that of learning from records


def test_lessons_go_on_where_they_were_interrupted(taught: Taught, narrow: D3PMGenerator) -> None:
    kept = next(each for each in taught.kept if each.values["step"] == STEPS + 30)
    resumed = fit(checkpoint=Checkpoint(load(save(kept.tensors)), kept.values))
    assert resumed.curve == narrow.curve
    for name, tensor in narrow.state().tensors.items():
        assert torch.equal(tensor, resumed.state().tensors[name]), name
    with pytest.raises(StateError, match="another network"):
        fit(SETTINGS | {"denoiser": SETTINGS["denoiser"] | {"width": 48}}, checkpoint=kept)


def test_lessons_can_be_stopped(taught: Taught) -> None:
    kept = next(each for each in taught.kept if each.values["step"] == STEPS + 30)
    with pytest.raises(TrainingStopped):
        fit(checkpoint=kept, hooks=Hooks(should_stop=lambda: True))


def test_divergence_is_that_of_what_is_said_of_hidden_codes() -> None:
    """Against the sum over all outcomes of one code by itself and of a group of three, of which one is known."""
    groups = GroupTable(Groups(5, [Group("g", (1, 2, 3), "at most one")]))
    told, said = torch.randn(2, 1, 5, generator=torch.Generator().manual_seed(0)).unbind(0)
    hidden = torch.tensor([[True, True, True, False, False]])
    p, q = torch.sigmoid(told[0, 0]), torch.sigmoid(said[0, 0])
    expected = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    of_told, of_said = (groups.probability(each[:, 1:4], hidden[:, 1:4])[0, :2] for each in (told, said))
    for a, b in [*zip(of_told, of_said, strict=True), (1 - of_told.sum(), 1 - of_said.sum())]:
        expected = expected + a * (a / b).log()
    assert torch.allclose(divergence(told, said, hidden, groups), expected, atol=1e-5)
    assert torch.allclose(divergence(told, told, hidden, groups), torch.zeros(1), atol=1e-6)


def test_lessons_are_a_share_of_the_training_and_never_many() -> None:
    few, many = plan_of_lessons(Plan(10, 50, None, None), 60), plan_of_lessons(Plan(100, 512, None, None), 2000)
    assert (few.epochs, few.before) == (2, 600)
    assert many.epochs * 2000 <= MOST < (many.epochs + 1) * 2000


@pytest.mark.parametrize(
    ("changes", "narrows"),
    [
        ({}, True),
        ({"drawing_width": None}, False),
        ({"drawing_width": 512}, False),
        ({"denoiser": SparseConfig(width=64)}, False),
        ({"noise": "uniform"}, False),
        ({"denoiser": PRESETS["paper-mimic"].denoiser}, False),
    ],
)
def test_only_what_is_wider_and_reveals_is_made_narrower(changes: dict[str, Any], narrows: bool) -> None:
    config = PRESETS["best"].model_copy(update=changes)
    assert config.is_narrowed is narrows
    assert config.kept_denoiser.width == (config.drawing_width if narrows else config.denoiser.width)
