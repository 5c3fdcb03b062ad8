"""The contract of generators that train: progress, stopping, resuming, and what they refuse."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from ehr.conditions import Condition
from ehr.errors import ConditionError, ConfigError, StateError, TrainingStopped
from tests.engine.test_generators import EXAMPLES, REJECTING, TRAINED
from worker.engine.checkpoints import Checkpoint
from worker.engine.generators import FitRequest, Generator, SampleRequest, generator_named
from worker.engine.training import Hooks, TrainingProgress


def fit_briefly(name: str, **changes: Any) -> Generator:
    """Six steps, in two epochs."""
    brief = {"epochs": 2, "batch_size": 50}
    example = EXAMPLES[name]
    settings = example.settings | ({"training": brief} if name == "d3pm" else brief)
    return generator_named(name).fit(FitRequest(example.population(150), None, settings, seed=3, **changes))


def stopped_after(step: int, name: str) -> Checkpoint:
    """Where a run was when it was stopped, as it is kept: tensors in safetensors, values in JSON."""
    kept: list[Checkpoint] = []
    hooks = Hooks(on_checkpoint=kept.append, should_stop=lambda: steps.pop() == 0)
    steps = list(range(step))  # popped from the end: 0 comes after `step` of them
    with pytest.raises(TrainingStopped):
        fit_briefly(name, hooks=hooks)
    assert kept[-1].values["step"] == step
    return Checkpoint(load(save(kept[-1].tensors)), json.loads(json.dumps(kept[-1].values)))


@pytest.mark.parametrize("name", TRAINED)
def test_a_run_that_is_stopped_after_any_step_and_resumed_ends_in_the_same_weights(name: str) -> None:
    whole = fit_briefly(name).state()
    for step in range(1, 6):
        resumed = fit_briefly(name, checkpoint=stopped_after(step, name)).state()
        assert set(resumed.tensors) == set(whole.tensors)
        for weight, tensor in whole.tensors.items():
            assert torch.equal(tensor, resumed.tensors[weight]), (step, weight)
        assert resumed.config == whole.config


@pytest.mark.parametrize("name", TRAINED)
def test_progress_is_told_after_every_step(name: str) -> None:
    seen: list[TrainingProgress] = []
    fit_briefly(name, hooks=Hooks(on_progress=seen.append))
    assert [(p.step, p.total_steps, p.epoch) for p in seen] == [(i, 6, 1 + (i > 3)) for i in range(1, 7)]
    assert all(np.isfinite(p.loss) for p in seen)


@pytest.mark.parametrize("name", TRAINED)
def test_training_and_drawing_leave_the_callers_random_numbers_alone(name: str) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    fit_briefly(name).sample(SampleRequest(5))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", TRAINED)
def test_a_checkpoint_of_another_run_is_refused(name: str) -> None:
    made = stopped_after(1, name)
    with pytest.raises(StateError, match="seed"):
        fit_briefly(name, checkpoint=Checkpoint(made.tensors, made.values | {"seed": 4}))
    with pytest.raises(StateError, match="another network"):
        fit_briefly(name, checkpoint=Checkpoint({"generator": made.tensors["generator"]}, made.values))


@pytest.mark.parametrize("name", REJECTING)
def test_a_condition_that_is_too_rare_is_an_error_and_not_an_endless_search(name: str) -> None:
    made = fit_briefly(name)  # hardly trained, a GAN has each code in half of its records
    asked = Condition.of(EXAMPLES[name].n_codes, all_of=EXAMPLES[name].common()[-20:])
    with pytest.raises(ConditionError, match="too rare"):
        made.sample(SampleRequest(5, condition=asked))


@pytest.mark.parametrize("name", REJECTING)
def test_a_method_that_is_not_offered_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="by rejection, not by 'exact'"):
        fit_briefly(name).sample(SampleRequest(5, method="exact"))
