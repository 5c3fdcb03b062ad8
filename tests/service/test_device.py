"""A model that is loaded computes on the worker's device: drawing, measuring and timing."""

from typing import Any

import numpy as np
import pytest
import torch

import worker.tasks.costs as costs
import worker.tasks.loading as loading
from ehr.vocabulary import Vocabulary
from worker.engine.generators import State
from worker.engine.generators.independent import IndependentGenerator
from worker.runtime import Runtime


class Elsewhere(IndependentGenerator):
    """Refuses to draw anywhere but on the device of the test."""

    def sample(self, *given: Any, **more: Any) -> Any:
        assert self.device == torch.device("cuda:7")
        return super().sample(*given, **more)


@pytest.fixture
def made() -> Elsewhere:
    return Elsewhere(np.array([0.5, 0.25]))


def test_costs_are_those_of_the_device(made: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "from_state", lambda _: made)
    vocabulary = Vocabulary(("A:1", "A:2"))
    told = costs.measured_costs(State({}, {}), vocabulary, 0, None, "cuda:7")
    assert told["methods"]
    with pytest.raises(AssertionError):
        costs.measured_costs(State({}, {}), vocabulary, 0, None, "cpu")


def test_a_loaded_model_is_on_the_device(made: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stub:
        def __getattr__(self, name: str) -> Any:
            return {"generator": "independent", "device": "cuda:7"}.get(name, self)

        def __call__(self, *_: Any, **__: Any) -> Any:
            return self

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None: ...

    for name in ("ModelRepository", "load_bundle", "unpack_tensors"):
        monkeypatch.setattr(loading, name, Stub())
    monkeypatch.setattr(loading, "from_state", lambda _: made)
    _, _, generator = loading.model_of(Runtime(Stub(), Stub(), Stub(), Stub()), "ada", "mdl")  # type: ignore[arg-type]
    assert generator is made and made.device == torch.device("cuda:7")
