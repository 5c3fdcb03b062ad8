"""The paper's model, at a width a CPU can train: it learns, it beats independent codes, and its guidance guides."""

import numpy as np
import pytest
import torch

from ehr.conditions import Condition
from ehr.generators.d3pm import PRESETS, LinformerConfig
from ehr.records import Records
from worker.engine.denoisers import LinformerDenoiser
from worker.engine.generators import FitRequest, SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.independent import IndependentGenerator
from worker.engine.guidance import ConditionEnergy, LangevinGuidance
from worker.engine.metrics import fidelity
from worker.engine.noise import UniformNoise
from worker.engine.population import simulated_population
from worker.engine.sampling import ancestral_sample

SETTINGS = {
    "noise": "uniform",
    "timesteps": 500,
    "denoiser": {"kind": "linformer", "width": 32, "layers": 2, "heads": 4, "projection": 32},
    "training": {"epochs": 8, "batch_size": 128, "learning_rate": 3e-3, "time_sampling": "importance"},
}
STEPS = 20


def most_common() -> list[int]:
    """The 24 most common codes of the simulated population: attention over all 367 would take minutes."""
    return sorted(np.argsort(-simulated_population().prevalence())[:24].tolist())


def population(n: int, seed: int) -> Records:
    full = simulated_population().sample(n, np.random.default_rng(seed))
    return Records.from_dense(full.to_csr().tocsc()[:, most_common()].toarray())


@pytest.fixture(scope="module")
def trained() -> D3PMGenerator:
    return D3PMGenerator.fit(FitRequest(population(6_000, 0), population(500, 1), SETTINGS))


def test_it_beats_independent_codes_on_held_out_records(trained: D3PMGenerator) -> None:
    test = population(2_000, 2)
    independent = IndependentGenerator.fit(FitRequest(population(6_000, 0))).log_loss()(test)[0]
    assert trained.held_out_elbo(test, draws=8).value < independent - 0.5


def test_its_samples_beat_independent_codes(trained: D3PMGenerator) -> None:
    samples = trained.sample(SampleRequest(2_000, steps=STEPS))
    names = ["cmd", "mcad"]
    results = fidelity(samples, population(2_000, 2), population(6_000, 0), np.random.default_rng(0), names=names)
    for result in results.values():
        assert result.value.value is not None and result.independent.value is not None
        assert result.value.value < result.independent.value


def test_guidance_raises_a_code_in_the_papers_proportion_and_more_with_more_steps(trained: D3PMGenerator) -> None:
    """eta 0.1, lambda 0.01: ten Langevin steps make a code two to four times as common, twenty more than ten."""
    code = int(np.argmin(np.abs(population(6_000, 0).prevalence() - 0.025)))
    condition = Condition.of(trained.noise.n_codes, all_of=[code])

    def prevalence(iterations: int) -> float:
        guide = LangevinGuidance(ConditionEnergy(condition), iterations=iterations)
        x = ancestral_sample(
            trained.denoiser.in_batches,
            trained.noise,
            1_000,
            STEPS,
            torch.Generator().manual_seed(0),
            guide if iterations else None,
        )
        return float(x[:, code].float().mean())

    none, ten, twenty = prevalence(0), prevalence(10), prevalence(20)
    assert 1.7 * none < ten < 6 * none
    assert twenty > 1.2 * ten


def test_the_papers_network_has_the_papers_shape() -> None:
    """paper-mimic at 1,042 codes, counted from the paper's description."""
    n, d, layers, k = 1042, 256, 5, 128
    config = PRESETS["paper-mimic"].denoiser
    assert isinstance(config, LinformerConfig)
    prevalence = torch.full((n,), 0.01)
    network = LinformerDenoiser(UniformNoise.create(prevalence, 500), prevalence, config)
    embeddings = 2 * d + n * d  # two states, a full table of positions
    time = (d * 4 * d + 4 * d) + (4 * d * d * layers + d * layers)  # sinusoid -> Linear -> Softplus -> Linear
    attention = 4 * d * d + d + 2 * n * k  # q, k, v without bias, out with one; two projections N -> k
    mlp = (d * 4 * d + 4 * d) + (4 * d * d + d)
    head = 2 * d + n * d * 2 + n * 2  # norm, then D -> 2 for each code
    expected = embeddings + time + layers * (attention + mlp + 2 * 2 * d) + head
    assert sum(p.numel() for p in network.parameters()) == expected
    assert all(block.attention.heads == 8 and block.attention.k == k for block in network.blocks)
