"""HALO: what is drawn code by code is what the network says of whole visits, and it learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from ehr.errors import ConfigError, StateError, TrainingStopped
from ehr.history_conditions import HistoryCondition
from tests.engine.test_histories import STATIC_GROUPS, A, same, toy
from worker.engine.checkpoints import Checkpoint
from worker.engine.generators.halo import HaloGenerator
from worker.engine.generators.protocol import State
from worker.engine.histories.batch import Learnable
from worker.engine.histories.chain import Chain
from worker.engine.histories.protocol import HistoryFit, HistoryRequest
from worker.engine.training import Hooks

SMALL = {"epochs": 1, "width": 24, "layers": 2, "heads": 2, "batch_size": 16}


def fitted(n: int = 100, **changes: float) -> HaloGenerator:
    return HaloGenerator.fit(HistoryFit(toy(n), toy(40, 1), SMALL | changes, static_groups=STATIC_GROUPS))


class Free(Chain):
    """Remembers the chances it was given, and follows them alone."""

    def draw(self, token: int, p: Tensor, chance: Tensor) -> Tensor:
        self.chances = [*getattr(self, "chances", []), p.clone()]
        self.x[:, token] = chance < p
        return chance < p


def test_a_code_is_drawn_by_what_the_network_says_given_the_codes_before() -> None:
    model = fitted()
    chain = Free(model.tokens, 6, torch.device("cpu"))
    with torch.no_grad():
        state = torch.randn(6, 24, generator=torch.Generator().manual_seed(0))
        x = model.network.draw(state, chain, torch.Generator().manual_seed(1))
        said = torch.sigmoid(model.network.logits(state, x.float()))
    assert x.any() and torch.allclose(torch.stack(chain.chances, 1), said, atol=1e-5)
    later = x.clone()
    later[:, 5:] = 1 - later[:, 5:]  # a code knows nothing of those after it
    with torch.no_grad():
        assert torch.allclose(model.network.logits(state, later.float())[:, :6].sigmoid(), said[:, :6])


def test_visit_after_visit_is_as_all_at_once() -> None:
    model = fitted()
    sequence, _ = model._sequences(Learnable.of(toy(5), 256))
    with torch.no_grad():
        whole, _ = model.network.states(sequence)
        state, past = model.network.states(sequence[:, :1])
        for place in range(1, sequence.shape[1]):
            assert torch.allclose(state[:, 0], whole[:, place - 1], atol=1e-4)
            state, past = model.network.states(sequence[:, place : place + 1], place, past)


def test_it_learns_and_is_saved() -> None:
    model, real = fitted(800, epochs=8, learning_rate=5e-3), toy(800, 5)
    assert model.curve[-1]["held_out"] < model.curve[0]["held_out"] - 1
    drawn = model.sample(HistoryRequest(600, seed=1))
    assert np.abs(drawn.visits.prevalence() - real.visits.prevalence()).max() < 0.12
    assert abs(drawn.visit_counts().mean() - real.visit_counts().mean()) < 0.6
    later = np.delete(np.arange(len(drawn.visits)), drawn.offsets[:-1])
    x = drawn.visits.to_dense() > 0
    assert x[later][x[later - 1][:, A], A].mean() > 0.8  # what lasts, lasts
    again = HaloGenerator.from_state(model.state())
    assert same(again.sample(HistoryRequest(20, seed=3)), model.sample(HistoryRequest(20, seed=3)))
    with pytest.raises(StateError, match="not the state"):
        HaloGenerator.from_state(State(model.state().tensors, model.state().config | {"version": 99}))


def test_training_resumes_bit_for_bit() -> None:
    kept: list[Checkpoint] = []
    steps = [0]

    def stop() -> bool:
        steps[0] += 1
        return steps[0] == 3

    fit = HistoryFit(toy(60), toy(20, 1), SMALL | {"epochs": 2}, static_groups=STATIC_GROUPS)
    with pytest.raises(TrainingStopped):
        HaloGenerator.fit(replace(fit, hooks=Hooks(on_checkpoint=kept.append, should_stop=stop)))
    resumed, whole = HaloGenerator.fit(replace(fit, checkpoint=kept[-1])), HaloGenerator.fit(fit)
    assert all(torch.equal(value, whole.state().tensors[name]) for name, value in resumed.state().tensors.items())


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="meets no conditions"):
        fitted().sample(HistoryRequest(1, condition=HistoryCondition(7, never=frozenset([A]))))
    with pytest.raises(ConfigError, match="multiple of heads"):
        fitted(heads=5)
