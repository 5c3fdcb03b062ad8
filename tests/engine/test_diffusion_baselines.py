"""The diffusion baselines: networks of the published sizes, each method's own, and that they learn."""

import json
import subprocess
import sys
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from worker.engine.checkpoints import Checkpoint
from worker.engine.errors import ConfigError, DataError, TrainingStopped
from worker.engine.generators import FitRequest, SampleRequest, State
from worker.engine.generators.baselines.base import Baseline
from worker.engine.generators.baselines.edm import EDM
from worker.engine.generators.baselines.ehrdiff import EHRDiff
from worker.engine.generators.baselines.tabddpm import TabDDPM
from worker.engine.generators.baselines.tabsyn import TabSyn
from worker.engine.independent import independent_records
from worker.engine.metrics import fidelity_metric
from worker.engine.population import simulated_population
from worker.engine.records import Records
from worker.engine.training import Hooks, Progress

ALL: tuple[type[Baseline], ...] = (TabDDPM, EHRDiff, TabSyn)

# Small enough for seconds on one core. The published networks are the same ones, wider, and train for hours.
LEARNS: dict[str, dict[str, Any]] = {
    "tabddpm": {
        "epochs": 42,
        "batch_size": 250,
        "ema_decay": 0.98,
        "timesteps": 50,
        "width": 256,
        "layers": (256,),
    },
    "ehrdiff": {
        "epochs": 40,
        "batch_size": 250,
        "learning_rate": 2e-3,
        "ema_decay": 0.98,
        "layers": (256, 256),
        "time_width": 64,
        "sigma_data": 0.25,
    },
    "tabsyn": {"epochs": 16, "batch_size": 100, "learning_rate": 5e-3, "factor": 8, "width": 256},
}
TINY: dict[str, dict[str, Any]] = {
    "tabddpm": {"epochs": 4, "batch_size": 50, "timesteps": 10, "width": 8, "layers": (16, 16)},
    "ehrdiff": {"epochs": 4, "batch_size": 50, "layers": (16, 8), "time_width": 8, "sampling_steps": 4},
    "tabsyn": {"epochs": 4, "batch_size": 50, "factor": 2, "width": 16, "sampling_steps": 4},
}
# Only the most common codes of the population: what these networks can learn in seconds.
CODES = {"tabddpm": 100, "ehrdiff": 100, "tabsyn": 60}

each = pytest.mark.parametrize("baseline", ALL, ids=lambda baseline: baseline.name)


@cache
def population(n: int, seed: int, codes: int) -> Records:
    """Simulated patients with the most common codes only."""
    world = simulated_population()
    records = world.sample(n, np.random.default_rng(seed))
    kept = np.sort(np.argsort(-world.prevalence(), kind="stable")[:codes])
    return Records.from_dense(records.to_dense()[:, kept])


def data(baseline: type[Baseline], n: int, seed: int = 0) -> Records:
    return population(n, seed, CODES[baseline.name])


def tiny(baseline: type[Baseline], hooks: Hooks | None = None, checkpoint: Checkpoint | None = None) -> Baseline:
    request = FitRequest(
        data(baseline, 200), settings=TINY[baseline.name], hooks=hooks or Hooks(), checkpoint=checkpoint, device="cpu"
    )
    return baseline.fit(request)


def same(a: Records, b: Records) -> bool:
    return np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices)


# --- published sizes ---


def linear_sizes(module: nn.Module) -> list[tuple[int, int]]:
    return [(part.in_features, part.out_features) for part in module.modules() if isinstance(part, nn.Linear)]


def parameters(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def test_tabddpm_has_the_published_network() -> None:
    """One-hot codes to 128, the time's embedding beside it, then 512, 1024 x 4, 512, and out."""
    baseline = TabDDPM(TabDDPM.Settings(), 1000)
    time = [(128, 128), (128, 128)]
    hidden = [(128, 512), (512, 1024), (1024, 1024), (1024, 1024), (1024, 1024), (1024, 512)]
    sizes = [(2000, 128), *time, *hidden, (512, 2000)]
    assert linear_sizes(baseline.network) == sizes
    assert parameters(baseline.network) == sum((n_in + 1) * n_out for n_in, n_out in sizes)


def test_ehrdiff_has_the_published_network() -> None:
    """1024-384-384-384-1024 between records, and a projection of the time to the input of every block."""
    baseline = EHRDiff(EHRDiff.Settings(), 1000)
    path = [1000, 1024, 384, 384, 384, 1024, 1000]
    blocks = [size for n_in, n_out in pairwise(path) for size in ((384, n_in), (n_in, n_out))]
    sizes = [(1000, 384), (384, 384), *blocks]
    assert linear_sizes(baseline.network) == sizes
    assert parameters(baseline.network) == sum((n_in + 1) * n_out for n_in, n_out in sizes)
    assert baseline.edm == EDM(sigma_data=0.14, sigma_min=0.02, sigma_max=80, rho=7, log_mean=-1.2, log_deviation=1.2)


def test_tabsyn_has_the_published_networks() -> None:
    """Tokens of 4, three transformers of two layers with one head and factor 32, a denoiser 1024-2048-2048-1024."""
    baseline = TabSyn(TabSyn.Settings(), 100)
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
    assert baseline(baseline.Settings(), 10).steps_of(SampleRequest(1)) == calls


@each
@pytest.mark.parametrize("steps", [None, 1, 4, 5])
def test_the_calls_that_are_told_are_the_calls_that_are_made(baseline: type[Baseline], steps: int | None) -> None:
    generator = baseline(baseline.Settings(**TINY[baseline.name]), 12)
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
        baseline(baseline.Settings(**TINY[baseline.name]), 12).sample(SampleRequest(1, steps=0))


# --- settings ---


def test_settings_need_no_torch() -> None:
    code = "import worker.engine.baseline_config, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@each
def test_settings_survive_json_and_refuse_nonsense(baseline: type[Baseline]) -> None:
    settings = baseline.Settings()
    assert baseline.Settings(**json.loads(settings.model_dump_json())) == settings
    with pytest.raises(ConfigError, match="epochs"):
        baseline.Settings(epochs=0)
    with pytest.raises(ConfigError, match="colour"):
        baseline.Settings(colour="red")


# --- each method's own ---


def test_tabddpm_adds_the_published_noise() -> None:
    """abar follows the squared cosine, with no step losing more than 0.999, and every code ends as a fair coin."""
    noise = TabDDPM(TabDDPM.Settings(timesteps=50), 4).noise
    t = np.arange(51) / 50
    cosine = np.cos((t + 0.008) / 1.008 * np.pi / 2) ** 2
    np.testing.assert_allclose(noise.abar[:50], cosine[:50] / cosine[0], atol=1e-12)
    np.testing.assert_allclose(noise.abar[50], 0.001 * noise.abar[49])
    np.testing.assert_allclose(noise.pi, 0.5)


def test_ehrdiff_rounds_or_tosses_coins() -> None:
    records, values = {}, torch.tensor([0.3, 0.6, -0.2])
    for binarise in ("round", "bernoulli"):
        generator = EHRDiff(EHRDiff.Settings(**TINY["ehrdiff"], binarise=binarise), 3)
        generator.edm = SimpleNamespace(sample=lambda network, shape, steps, generator: values.expand(shape))
        records[binarise] = generator.sample(SampleRequest(5000)).prevalence()
    np.testing.assert_array_equal(records["round"], [0, 1, 0])
    np.testing.assert_allclose(records["bernoulli"], [0.3, 0.6, 0], atol=0.03)


def test_tabsyn_refuses_more_codes_than_it_can_learn() -> None:
    with pytest.raises(DataError, match=r"at most 200 codes, not 201.*most common codes"):
        TabSyn.fit(FitRequest(Records.from_sets([[0], [200]], 201)))


def test_tabsyn_puts_its_latents_where_the_diffusion_expects_them() -> None:
    generator = tiny(TabSyn)
    x = torch.from_numpy(data(TabSyn, 200).to_dense())
    z = (generator.network.latents(x) - generator.network.centre) / generator.network.scale
    np.testing.assert_allclose(z.detach().mean(0), 0, atol=1e-4)
    assert float(z.detach().var(0, correction=0).mean().sqrt()) == pytest.approx(0.5, rel=1e-3)


# --- learning ---


@pytest.fixture(scope="module", params=ALL, ids=lambda baseline: baseline.name)
def learnt(request: pytest.FixtureRequest) -> tuple[Baseline, list[float]]:
    """A trained baseline and the loss of each of its steps."""
    losses: list[float] = []

    class Watched(request.param):
        def train_step(self, *arguments: Any) -> float:
            losses.append(super().train_step(*arguments))
            return losses[-1]

    train = data(request.param, 5000)
    return Watched.fit(FitRequest(train, settings=LEARNS[request.param.name], device="cpu")), losses


def test_the_loss_falls(learnt: tuple[Baseline, list[float]]) -> None:
    generator, losses = learnt
    phases = np.split(np.array(losses), [len(losses) // 2]) if isinstance(generator, TabSyn) else [np.array(losses)]
    for phase in phases:
        tenth = len(phase) // 10
        assert phase[-tenth:].mean() < 0.9 * phase[:tenth].mean()


def test_samples_beat_independent_codes(learnt: tuple[Baseline, list[float]]) -> None:
    generator, _ = learnt
    kind = next(baseline for baseline in ALL if isinstance(generator, baseline))
    train, test = data(kind, 5000), data(kind, 5000, seed=1)
    rng = np.random.default_rng(0)
    cohorts = {
        "synthetic": generator.sample(SampleRequest(3000)),
        "independent": independent_records(train.prevalence(), 3000, rng),
    }
    share = {}
    for name in ("cmd", "mcad"):
        values = {who: fidelity_metric(name).measure(cohort, test, train, rng).value for who, cohort in cohorts.items()}
        share[name] = values["synthetic"] / values["independent"]
    assert min(share.values()) < 0.8, share


# --- repeatable ---


@each
def test_a_seed_is_enough_to_repeat_training_and_sampling(baseline: type[Baseline]) -> None:
    first, second = tiny(baseline), tiny(baseline)
    request = SampleRequest(50, seed=3)
    drawn = first.sample(request)
    torch.manual_seed(12345)  # nothing may come from torch's global generator
    assert same(drawn, first.sample(request))
    assert same(drawn, second.sample(request))
    assert not same(drawn, first.sample(SampleRequest(50, seed=4)))


@each
def test_state_goes_through_safetensors_and_json_and_gives_the_same_samples(baseline: type[Baseline]) -> None:
    generator = tiny(baseline)
    state = generator.state()
    loaded = State(load(save(state.tensors)), json.loads(json.dumps(state.config)))
    request = SampleRequest(60, seed=9)
    assert same(generator.sample(request), baseline.from_state(loaded).sample(request))


@each
@pytest.mark.parametrize("stop_after", [1, 7, 8, 9, 15])
def test_training_stops_and_resumes_bit_for_bit(baseline: type[Baseline], stop_after: int) -> None:
    """Of 16 steps; TabSyn's second phase begins with the ninth."""
    seen: list[Progress] = []
    saved: list[Checkpoint] = []
    hooks = Hooks(seen.append, saved.append, lambda: seen[-1].step == stop_after)
    with pytest.raises(TrainingStopped):
        tiny(baseline, hooks)
    assert seen[-1].total_steps == 16
    checkpoint = Checkpoint(load(save(saved[-1].tensors)), json.loads(json.dumps(saved[-1].values)))
    resumed, straight = tiny(baseline, checkpoint=checkpoint).state(), tiny(baseline).state()
    assert resumed.tensors.keys() == straight.tensors.keys()
    assert all(torch.equal(resumed.tensors[name], straight.tensors[name]) for name in straight.tensors)
    assert resumed.config == straight.config
