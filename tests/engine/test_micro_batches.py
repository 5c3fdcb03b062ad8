"""A batch in parts: the gradients of the whole batch, bounded memory, and resuming bit for bit."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ehr.errors import TrainingStopped
from ehr.generators.d3pm import PRESETS, LinformerConfig
from ehr.groups import find_groups
from ehr.records import Records
from worker.engine.checkpoints import Checkpoint
from worker.engine.denoisers import LinformerDenoiser
from worker.engine.generators import FitRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.noise import UniformNoise
from worker.engine.population import simulated_population
from worker.engine.training import Hooks, devices

SPARSE = {"kind": "sparse", "width": 16, "blocks": 1, "common_codes": 8, "dropout": 0.0, "input_dropout": 0.0}
LINFORMER = {"kind": "linformer", "width": 8, "layers": 2, "heads": 2, "projection": 4}
GIB = 1 << 30


def population(n: int, seed: int = 0) -> Records:
    return simulated_population().sample(n, np.random.default_rng(seed))


def gradients(denoiser: dict[str, Any], noise: str, micro_batch: int | None) -> dict[str, Tensor]:
    """Of the first step from weights that are not the first ones: those of the sparse network start at 0."""
    training = {"batch_size": 24, "micro_batch": micro_batch, "gradient_clip": None, "auxiliary_weight": 0.1}
    records, codes = population(24), simulated_population().vocabulary
    settings = {"noise": noise, "timesteps": 50, "denoiser": denoiser, "training": training}
    groups = find_groups(records, codes)
    generator, run = D3PMGenerator.prepare(FitRequest(records, None, settings, seed=2, groups=groups))
    noisy = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in generator.denoiser.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=noisy)
    run.learner.step(records, run)
    return {name: weight.grad.clone() for name, weight in run.learner.weights.items() if weight.grad is not None}


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
@pytest.mark.parametrize("denoiser", [SPARSE, LINFORMER, LINFORMER | {"recompute": True}])
def test_parts_have_the_gradients_of_the_whole(
    denoiser: dict[str, Any], noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contexts, which a noise that reveals adds, are divided as well; 24 is no multiple of 7, and 2 leaves some parts
    without one. In float32, whose rounding is smaller than any mistake."""
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: False)
    whole = gradients(denoiser | ({"recompute": False} if denoiser["kind"] == "linformer" else {}), noise, None)
    assert max(float(gradient.abs().max()) for gradient in whole.values()) > 1e-3
    for micro_batch in (7, 2):
        parts = gradients(denoiser, noise, micro_batch)
        assert parts.keys() == whole.keys()
        for name, gradient in whole.items():
            scale = float(gradient.abs().max()) + 1e-6
            torch.testing.assert_close(parts[name] / scale, gradient / scale, rtol=1e-4, atol=2e-5, msg=name)


@pytest.mark.parametrize("denoiser", [SPARSE | {"dropout": 0.2, "input_dropout": 0.1}, LINFORMER | {"recompute": True}])
def test_resuming_changes_nothing(denoiser: dict[str, Any]) -> None:
    training = {"epochs": 3, "batch_size": 20, "micro_batch": 9, "time_sampling": "importance"}
    settings = {"timesteps": 20, "denoiser": denoiser, "training": training}
    train, kept = population(60), list[Checkpoint]()
    whole = D3PMGenerator.fit(FitRequest(train, None, settings))
    steps = iter(range(4))
    stopping = Hooks(on_checkpoint=kept.append, should_stop=lambda: next(steps, None) is None)
    with pytest.raises(TrainingStopped):
        D3PMGenerator.fit(FitRequest(train, None, settings, hooks=stopping))
    resumed = D3PMGenerator.fit(FitRequest(train, None, settings, checkpoint=kept[-1]))
    for name, tensor in whole.state().tensors.items():
        assert torch.equal(tensor, resumed.state().tensors[name]), name


def test_no_call_with_gradients_has_more_records_than_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    forward = LinformerDenoiser.forward

    def watched(self: LinformerDenoiser, x_t: Tensor, *more: Any) -> Tensor:
        seen.append(len(x_t))
        return forward(self, x_t, *more)

    monkeypatch.setattr(LinformerDenoiser, "forward", watched)
    monkeypatch.setattr(LinformerDenoiser, "rows_per_gradient", lambda self, device: 16)
    training = {"epochs": 1, "batch_size": 50}
    settings = {"noise": "uniform", "timesteps": 20, "denoiser": LINFORMER, "training": training}
    D3PMGenerator.fit(FitRequest(population(50), None, settings))
    assert sum(seen) == 50 and max(seen) <= 16


@pytest.mark.parametrize(("preset", "codes"), [("paper-mimic", 949), ("paper-large", 949), ("paper-large", 20_000)])
def test_what_a_record_takes_decides_how_many_go_at_a_time(preset: str, codes: int) -> None:
    """What one more block keeps of one more code is counted here from the tensors that autograd saves."""
    config = PRESETS[preset].denoiser
    assert isinstance(config, LinformerConfig)
    one, two = (config.model_copy(update={"layers": layers}) for layers in (1, 2))
    of_one, of_two = ([_saved_numbers(each, n) for n in (20, 40)] for each in (one, two))
    kept = config.layers * codes * ((of_two[1] - of_two[0]) - (of_one[1] - of_one[0])) // 20
    network = _network(one, 20)
    network.config, network.noise = config, UniformNoise.create(torch.full((codes,), 0.01), 10)
    rows = network.rows_per_gradient(torch.device("cpu"))
    assert rows is not None and 1 <= rows < 256
    recomputes = network._recomputes(torch.device("cpu"))
    assert recomputes == (codes > 949)
    if not recomputes:
        assert 1.5 * GIB < 4 * rows * kept < 2.5 * GIB


def _saved_numbers(config: LinformerConfig, codes: int) -> int:
    network = _network(config, codes)
    own = {weight.data_ptr() for weight in network.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        network(torch.zeros(1, codes, dtype=torch.uint8), torch.ones(1, dtype=torch.long))
    return sum(saved.values())


def _network(config: LinformerConfig, codes: int) -> LinformerDenoiser:
    prevalence = torch.full((codes,), 0.01)
    return LinformerDenoiser(UniformNoise.create(prevalence, 10), prevalence, config)
