"""Samplers with the exact denoiser of a population whose moments are known: all error left is the sampler's own."""

import math
from functools import lru_cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.errors import ConfigError
from tests.engine import oracle
from worker.engine.noise import NOISES, Noise
from worker.engine.population import SimulatedPopulation, simulated_population
from worker.engine.sampling import Denoise, ancestral_sample

Floats = NDArray[np.float64]

EVERY_NOISE = pytest.mark.parametrize("kind", NOISES, ids=lambda kind: kind.name)
RECORDS, TIMESTEPS, CODES, STATES = 4_000, 64, 48, 300


@lru_cache
def population() -> SimulatedPopulation:
    """The simulated population, cut to its most common clinical codes and its heaviest states."""
    whole = simulated_population()
    clinical = [i for i, code in enumerate(whole.vocabulary) if not code.startswith(("SEX:", "AGE:"))]
    codes = np.array(clinical)[np.argsort(-whole.prevalence()[clinical])[:CODES]]
    states = np.argsort(-whole.state_weights)[:STATES]
    weights = whole.state_weights[states]
    return SimulatedPopulation(
        vocabulary=tuple(whole.vocabulary[i] for i in codes),
        descriptions=tuple(whole.descriptions[i] for i in codes),
        state_weights=weights / weights.sum(),
        # codes drawn side by side may contradict a state; with nothing impossible every x_t has a posterior
        code_probabilities=whole.code_probabilities[np.ix_(states, codes)].clip(1e-3, 1 - 1e-3),
    )


def noise_for(kind: type[Noise], timesteps: int = TIMESTEPS) -> Noise:
    return kind.create(torch.from_numpy(population().prevalence()), timesteps)


def exact_denoise(noise: Noise) -> Denoise:
    """log-odds of p(x_0 | x_t) in the population; the state of a code in x_t is what is observed of it."""

    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        given = [noise.q_probability(torch.full((1, noise.n_codes), x_0), t[:1])[0] for x_0 in (0, 1)]  # (N, S) each
        likelihood = torch.stack(given, dim=-1).numpy()  # (N, S, 2)
        return torch.logit(
            torch.from_numpy(oracle.exact_x0_probability(population(), x_t.numpy(), likelihood)), eps=1e-12
        )

    return denoise


def draw(kind: type[Noise], steps: int, n: int = RECORDS, seed: int = 0) -> Tensor:
    noise = noise_for(kind)
    return ancestral_sample(exact_denoise(noise), noise, n, steps, torch.Generator().manual_seed(seed))


def covariance_error(x: NDArray[np.uint8]) -> float:
    """Root of the sum of squared errors of the covariance over all pairs of codes."""
    p = population().prevalence()
    truth = oracle.pair_probability(population()) - np.outer(p, p)
    upper = np.triu_indices(CODES, 1)
    return float(np.linalg.norm((np.cov(x.T.astype(np.float64), ddof=0) - truth)[upper]))


def correlation_slope(x: NDArray[np.uint8]) -> float:
    """How much of the true correlations is there: 1 is all of it, 0 none, over all pairs of codes."""
    upper = np.triu_indices(CODES, 1)
    truth, found = oracle.correlation(population())[upper], np.corrcoef(x.T.astype(np.float64))[upper]
    return float((truth @ found) / (truth @ truth))


def size_distance(x: NDArray[np.uint8]) -> float:
    """Total variation between the sizes of the records and the true distribution of sizes."""
    share = np.bincount(x.sum(1), minlength=CODES + 1) / len(x)
    return float(0.5 * np.abs(share - oracle.size_distribution(population(), CODES)).sum())


def z_scores(x: NDArray[np.uint8]) -> Floats:
    p = population().prevalence()
    z: Floats = (x.mean(0) - p) / np.sqrt(p * (1 - p) / len(x))
    return z


@lru_cache
def floor() -> tuple[float, float]:
    """Covariance error and size distance of equally many records drawn from the population itself."""
    direct = [population().sample(RECORDS, np.random.default_rng(seed)).to_dense(np.uint8) for seed in range(5)]
    return float(np.mean([covariance_error(x) for x in direct])), float(np.mean([size_distance(x) for x in direct]))


# ---- the distribution that is reached


def test_the_population_is_worth_sampling() -> None:
    """Its codes are correlated well above the noise of the comparison, or the tests below would show nothing."""
    independent = np.random.default_rng(0).random((RECORDS, CODES)) < population().prevalence()
    error, sizes = floor()
    assert covariance_error(independent.astype(np.uint8)) > 3 * error
    assert size_distance(independent.astype(np.uint8)) > 3 * sizes


@EVERY_NOISE
def test_every_sampler_reaches_the_population_as_steps_grow(kind: type[Noise]) -> None:
    drawn = [draw(kind, steps).numpy() for steps in (2, 8, 64)]
    errors = [covariance_error(x) for x in drawn]
    assert errors[0] > 2 * errors[1]
    assert errors[1] > errors[2]
    assert errors[2] < 1.3 * floor()[0]
    assert correlation_slope(drawn[0]) < 0.8
    assert correlation_slope(drawn[2]) == pytest.approx(1, abs=0.07)
    distances = [size_distance(x) for x in drawn]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 2 * floor()[1]
    assert np.abs(z_scores(drawn[2])).max() < 5


def test_one_step_of_absorbing_noise_is_the_independent_model() -> None:
    """All codes are revealed at once from nothing: right prevalences, no correlation."""
    absorbing = next(kind for kind in NOISES if kind.reveals)
    x = draw(absorbing, 1).numpy()
    assert np.abs(z_scores(x)).max() < 5
    assert correlation_slope(x) == pytest.approx(0, abs=0.05)


# ---- the walk


def prior_only(noise: Noise) -> Denoise:
    """A denoiser that knows nothing but the prevalences."""
    logits = torch.logit(torch.from_numpy(population().prevalence())).float()
    return lambda x_t, t: logits + noise.evidence(x_t, t)


@pytest.mark.parametrize("steps", [1, 5, 64])
@EVERY_NOISE
def test_a_walk_calls_the_denoiser_once_a_step_and_ends_in_records(kind: type[Noise], steps: int) -> None:
    noise, calls = noise_for(kind), []

    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        assert x_t.shape == (7, CODES)
        assert x_t.dtype == torch.uint8
        assert t.shape == (7,)
        assert len(t.unique()) == 1
        calls.append(t[0].item())
        return prior_only(noise)(x_t, t)

    x = ancestral_sample(denoise, noise, 7, steps, torch.Generator().manual_seed(0))
    assert len(calls) == steps
    assert calls[0] == TIMESTEPS
    assert calls == sorted(set(calls), reverse=True)
    assert x.shape == (7, CODES)
    assert x.dtype == torch.uint8
    assert x.max() <= 1


@EVERY_NOISE
def test_seeds_reproduce(kind: type[Noise]) -> None:
    first, again, other = (draw(kind, 4, n=200, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@EVERY_NOISE
def test_no_records_are_no_records(kind: type[Noise]) -> None:
    assert ancestral_sample(prior_only(noise_for(kind)), noise_for(kind), 0, 4, torch.Generator()).shape == (0, CODES)


@pytest.mark.parametrize("steps", [0, TIMESTEPS + 1])
def test_impossible_numbers_of_steps_are_refused(steps: int) -> None:
    noise = noise_for(NOISES[0])
    with pytest.raises(ConfigError, match=f"between 1 and the {TIMESTEPS} .* not {steps}"):
        ancestral_sample(prior_only(noise), noise, 3, steps, torch.Generator())


@EVERY_NOISE
def test_the_guide_sees_every_step_and_its_logits_are_used(kind: type[Noise]) -> None:
    noise, seen, generator = noise_for(kind), [], torch.Generator().manual_seed(0)

    def guide(logits: Tensor, x_t: Tensor, t: Tensor, draws: torch.Generator) -> Tensor:
        assert logits.shape == x_t.shape == (9, CODES)
        assert t.shape == (9,)
        assert draws is generator
        assert torch.equal(logits, prior_only(noise)(x_t, t))
        seen.append(t[0].item())
        forced = torch.full_like(logits, -40.0)
        forced[:, 5] = 40.0
        return forced

    x = ancestral_sample(prior_only(noise), noise, 9, 8, generator, guide)
    assert seen == list(range(64, 0, -8))
    assert torch.all(x[:, 5] == 1)
    assert x.sum() == 9


@EVERY_NOISE
def test_a_guide_that_changes_nothing_changes_nothing(kind: type[Noise]) -> None:
    noise = noise_for(kind)
    plain, guided = (
        ancestral_sample(prior_only(noise), noise, 50, 8, torch.Generator().manual_seed(4), guide)
        for guide in (None, lambda logits, x_t, t, generator: logits)
    )
    assert torch.equal(plain, guided)


@EVERY_NOISE
def test_independent_codes_are_exact_in_one_step_and_in_many(kind: type[Noise]) -> None:
    """With the posterior of each code alone the reverse step is exact, whatever its stride; z over all codes."""
    noise = noise_for(kind)
    for steps in (1, 3, 32):
        x = ancestral_sample(prior_only(noise), noise, 10_000, steps, torch.Generator().manual_seed(steps)).numpy()
        z = z_scores(x)
        assert np.abs(z).max() < 5
        assert math.sqrt(np.mean(z**2)) < 1.5
