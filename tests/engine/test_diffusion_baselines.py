"""The diffusion baselines: networks of the published sizes and each method's own. What they learn is in
test_generators.py."""

import json
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ehr.errors import ConfigError, DataError
from ehr.generators.ehrdiff import EHRDiffConfig
from ehr.generators.tabddpm import TabDDPMConfig
from ehr.generators.tabsyn import TabSynConfig
from ehr.records import Records
from tests.engine.test_generators import population
from worker.engine.generators import FitRequest, SampleRequest, State
from worker.engine.generators.baselines.base import Baseline
from worker.engine.generators.baselines.edm import EDM
from worker.engine.generators.baselines.ehrdiff import EHRDiff
from worker.engine.generators.baselines.tabddpm import TabDDPM
from worker.engine.generators.baselines.tabsyn import TabSyn

ALL: tuple[type[Baseline], ...] = (TabDDPM, EHRDiff, TabSyn)

TINY: dict[str, dict[str, Any]] = {
    "tabddpm": {"epochs": 4, "batch_size": 50, "timesteps": 10, "width": 8, "layers": (16, 16)},
    "ehrdiff": {"epochs": 4, "batch_size": 50, "layers": (16, 8), "time_width": 8, "sampling_steps": 4},
    "tabsyn": {"epochs": 4, "batch_size": 50, "factor": 2, "width": 16, "sampling_steps": 4},
}

each = pytest.mark.parametrize("baseline", ALL, ids=lambda baseline: baseline.spec.name)


# --- published sizes ---


def linear_sizes(module: nn.Module) -> list[tuple[int, int]]:
    return [(part.in_features, part.out_features) for part in module.modules() if isinstance(part, nn.Linear)]


def parameters(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def test_tabddpm_has_the_published_network() -> None:
    """One-hot codes to 128, the time's embedding beside it, then 512, 1024 x 4, 512, and out."""
    baseline = TabDDPM(TabDDPMConfig(), 1000)
    time = [(128, 128), (128, 128)]
    hidden = [(128, 512), (512, 1024), (1024, 1024), (1024, 1024), (1024, 1024), (1024, 512)]
    sizes = [(2000, 128), *time, *hidden, (512, 2000)]
    assert linear_sizes(baseline.network) == sizes
    assert parameters(baseline.network) == sum((n_in + 1) * n_out for n_in, n_out in sizes)


def test_ehrdiff_has_the_published_network() -> None:
    """1024-384-384-384-1024 between records, and a projection of the time to the input of every block."""
    baseline = EHRDiff(EHRDiffConfig(), 1000)
    path = [1000, 1024, 384, 384, 384, 1024, 1000]
    blocks = [size for n_in, n_out in pairwise(path) for size in ((384, n_in), (n_in, n_out))]
    sizes = [(1000, 384), (384, 384), *blocks]
    assert linear_sizes(baseline.network) == sizes
    assert parameters(baseline.network) == sum((n_in + 1) * n_out for n_in, n_out in sizes)
    assert baseline.edm == EDM(sigma_data=0.14, sigma_min=0.02, sigma_max=80, rho=7, log_mean=-1.2, log_deviation=1.2)


def test_tabsyn_has_the_published_networks() -> None:
    """Tokens of 4, three transformers of two layers with one head and factor 32, a denoiser 1024-2048-2048-1024."""
    baseline = TabSyn(TabSynConfig(), 100)
    denoiser = [(400, 1024), (1024, 1024), (1024, 1024), (1024, 2048), (2048, 2048), (2048, 1024), (1024, 400)]
    assert linear_sizes(baseline.network.denoiser) == denoiser
    attention, feed_forward, norm = 3 * (4 * 4 + 4), (4 + 1) * 128 + (128 + 1) * 4, 2 * 4
    transformer = 2 * (attention + feed_forward + norm) + norm  # the first layer has no norm before its attention
    tokens, readout = (1 + 2 * 100 + 100) * 4, 100 * 2 * (4 + 1)
    autoencoder = parameters(baseline.network) - parameters(baseline.network.denoiser)
    assert autoencoder == tokens + 3 * transformer + readout
    assert linear_sizes(baseline.network.decoder) == 2 * [*3 * [(4, 4)], (4, 128), (128, 4)]


@pytest.mark.parametrize(("baseline", "calls"), [(TabDDPM, 1000), (EHRDiff, 63), (TabSyn, 99)])
def test_a_record_takes_the_published_number_of_network_calls(baseline: type[Baseline], calls: int) -> None:
    assert baseline(baseline.settings_of({}), 10).steps_of(SampleRequest(1)) == calls


@each
@pytest.mark.parametrize("steps", [None, 1, 4, 5])
def test_the_calls_that_are_told_are_the_calls_that_are_made(baseline: type[Baseline], steps: int | None) -> None:
    generator = baseline(baseline.settings_of(TINY[baseline.spec.name]), 12)
    request, made = SampleRequest(3, steps=steps), []
    generator.network.get_submodule("time.mlp" if baseline is not TabSyn else "denoiser").register_forward_hook(
        lambda *_: made.append(1)
    )
    generator.sample(request)
    assert len(made) == generator.steps_of(request)
    assert steps is None or len(made) in (steps, steps - 1)


@each
def test_too_few_steps_are_refused(baseline: type[Baseline]) -> None:
    with pytest.raises(ConfigError, match="steps"):
        baseline(baseline.settings_of(TINY[baseline.spec.name]), 12).sample(SampleRequest(1, steps=0))


# --- settings ---


def test_the_defaults_are_the_published_ones() -> None:
    """Those of the authors' code, or of the publication where the two differ and docs/baselines.md says so."""
    ddpm, diff, syn = TabDDPMConfig(), EHRDiffConfig(), TabSynConfig()
    assert (ddpm.learning_rate, ddpm.weight_decay, ddpm.batch_size, ddpm.ema_decay) == (2e-3, 1e-4, 1024, 0.999)
    assert ddpm.timesteps == 1000 and ddpm.epochs * 40_960 / ddpm.batch_size == 30_000
    assert (diff.learning_rate, diff.batch_size, diff.ema_decay, diff.warmup_steps) == (3e-4, 1024, 0.999, 20_000)
    assert (syn.learning_rate, syn.batch_size, syn.beta_max, syn.beta_min) == (1e-3, 4096, 1e-2, 1e-5)
    assert syn.epochs * syn.autoencoder_share == pytest.approx(4000) and syn.epochs == 14_000


def test_settings_need_no_torch() -> None:
    code = "import ehr.generators, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@each
def test_settings_survive_json_and_refuse_nonsense(baseline: type[Baseline]) -> None:
    settings = baseline.settings_of({})
    assert baseline.settings_of(json.loads(settings.model_dump_json())) == settings
    with pytest.raises(ConfigError, match="epochs"):
        baseline.settings_of({"epochs": 0})
    with pytest.raises(ConfigError, match="colour"):
        baseline.settings_of({"colour": "red"})


# --- each method's own ---


def test_tabddpm_adds_the_published_noise() -> None:
    """abar follows the squared cosine, with no step losing more than 0.999, and every code ends as a fair coin."""
    noise = TabDDPM(TabDDPMConfig(timesteps=50), 4).noise
    t = np.arange(51) / 50
    cosine = np.cos((t + 0.008) / 1.008 * np.pi / 2) ** 2
    np.testing.assert_allclose(noise.abar[:50], cosine[:50] / cosine[0], atol=1e-12)
    np.testing.assert_allclose(noise.abar[50], 0.001 * noise.abar[49])
    np.testing.assert_allclose(noise.pi, 0.5)


def test_ehrdiff_rounds_or_tosses_coins() -> None:
    records, values = {}, torch.tensor([0.3, 0.6, -0.2])
    for binarise in ("round", "bernoulli"):
        generator = EHRDiff(EHRDiff.settings_of(TINY["ehrdiff"] | {"binarise": binarise}), 3)
        generator.edm = SimpleNamespace(sample=lambda network, shape, steps, generator: values.expand(shape))
        records[binarise] = generator.sample(SampleRequest(5000)).prevalence()
    np.testing.assert_array_equal(records["round"], [0, 1, 0])
    np.testing.assert_allclose(records["bernoulli"], [0.3, 0.6, 0], atol=0.03)


def test_tabsyn_refuses_more_codes_than_it_can_learn() -> None:
    with pytest.raises(DataError, match=r"at most 200 codes, not 201.*most common codes"):
        TabSyn.fit(FitRequest(Records.from_sets([[0], [200]], 201)))


def test_tabsyn_puts_its_latents_where_the_diffusion_expects_them() -> None:
    train = population(200, codes=60)
    generator = TabSyn.fit(FitRequest(train, settings=TINY["tabsyn"], device="cpu"))
    z = generator.network.latents(torch.from_numpy(train.to_dense())) - generator.network.centre
    z = (z / generator.network.scale).detach()
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-4)
    assert float(z.var(0, correction=0).mean().sqrt()) == pytest.approx(0.5, rel=1e-3)
    assert not {"train", "encoded"} & set(vars(generator))  # a trained generator holds no patients


def test_tabsyns_encoder_is_not_saved() -> None:
    generator = TabSyn.fit(FitRequest(population(100, codes=12), settings=TINY["tabsyn"], device="cpu"))
    state = generator.state()
    parts = {name.split(".")[0] for name in state.tensors}
    assert parts == {"decoder", "readout", "readout_bias", "denoiser", "centre", "scale"}
    whole = State(generator.network.state_dict(), state.config)  # as it was once saved
    records = generator.sample(SampleRequest(50)).to_dense()
    assert records.any()
    for kept in (state, whole):
        np.testing.assert_array_equal(TabSyn.from_state(kept).sample(SampleRequest(50)).to_dense(), records)
