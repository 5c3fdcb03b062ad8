"""EDM's mathematics against a normal distribution, whose ideal denoiser is known."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from worker.engine.generators.baselines.edm import EDM

MEAN, DEVIATION = torch.tensor([0.3, -1.0, 2.0]), torch.tensor([0.5, 0.1, 1.5])


def ideal_network(edm: EDM) -> Callable[[Tensor, Tensor], Tensor]:
    """The network that makes D the exact mean of x_0 given x_sigma, for x_0 normal with MEAN and DEVIATION."""

    def network(scaled: Tensor, c_noise: Tensor) -> Tensor:
        sigma = (4 * c_noise).exp().unsqueeze(1)
        total = (sigma**2 + edm.sigma_data**2).sqrt()
        x = scaled * total
        ideal = MEAN + DEVIATION**2 / (DEVIATION**2 + sigma**2) * (x - MEAN)
        return (ideal - edm.sigma_data**2 / total**2 * x) / (sigma * edm.sigma_data / total)

    return network


def test_the_sampler_follows_the_known_path_of_a_normal_distribution() -> None:
    """Without churn a record starts at sigma_max and ends where the probability flow has its quantile."""
    edm = EDM(sigma_data=0.5, sigma_min=0.002)
    x = edm.sample(ideal_network(edm), (500, 3), 64, torch.Generator().manual_seed(0))
    start = 80 * torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    expected = MEAN + DEVIATION * (start - MEAN) / (DEVIATION**2 + 80**2).sqrt()
    assert float(((x - expected).abs() / DEVIATION).max()) < 0.03


@pytest.mark.parametrize("churn", [0.0, 1.0])
def test_the_sampler_reproduces_mean_and_variance_of_a_normal_distribution(churn: float) -> None:
    edm = EDM(sigma_data=0.5, sigma_min=0.002, churn=churn)
    x = edm.sample(ideal_network(edm), (20_000, 3), 32, torch.Generator().manual_seed(0))
    # A start without the mean of the data leaves DEVIATION / 80 of it out; then four standard errors.
    tolerance = MEAN.abs() * DEVIATION / 80 + 4 * DEVIATION / 20_000**0.5
    assert bool(((x.mean(0) - MEAN).abs() < tolerance).all())
    np.testing.assert_allclose(x.std(0), DEVIATION, rtol=0.03)


@pytest.mark.parametrize("churn", [0.0, 1.0, 80.0])
def test_without_a_network_samples_have_the_deviation_that_is_assumed(churn: float) -> None:
    """D is then c_skip * x, the ideal denoiser of a normal distribution with deviation sigma_data."""
    edm = EDM(sigma_data=0.14, sigma_min=0.002, churn=churn)
    x = edm.sample(lambda x, t: torch.zeros_like(x), (20_000, 1), 256, torch.Generator().manual_seed(0))
    assert float(x.std()) == pytest.approx(0.14, rel=0.025)
    assert abs(float(x.mean())) < 4 * 0.14 / 20_000**0.5


def test_no_network_has_a_lower_loss_than_the_ideal_one() -> None:
    """The loss is least at the mean of x_0 given x_sigma: any shift of it costs."""
    edm = EDM(sigma_data=0.5, sigma_min=0.002)
    x = MEAN + DEVIATION * torch.randn(20_000, 3, generator=torch.Generator().manual_seed(1))
    ideal = ideal_network(edm)
    losses = [
        float(edm.loss(lambda x, t, by=by: ideal(x, t) + by, x, torch.Generator().manual_seed(2)))
        for by in (-0.1, 0.0, 0.1)
    ]
    assert losses[1] < min(losses[0], losses[2])


def test_the_target_of_the_network_has_variance_1_at_every_noise() -> None:
    x = 0.14 * torch.randn(200_000, 1, generator=torch.Generator().manual_seed(3))
    for log_mean, log_deviation in ((-3.0, 0.01), (-1.2, 0.01), (2.0, 0.01), (-1.2, 1.2)):
        edm = EDM(sigma_data=0.14, sigma_min=0.02, log_mean=log_mean, log_deviation=log_deviation)
        nothing = edm.loss(lambda x, t: torch.zeros_like(x), x, torch.Generator().manual_seed(4))
        assert float(nothing) == pytest.approx(1, abs=0.02)


def test_noise_levels_are_the_published_ones() -> None:
    sigmas = EDM(sigma_data=0.14, sigma_min=0.02).sigmas(32)
    assert len(sigmas) == 33
    assert sigmas[0] == pytest.approx(80) and sigmas[31] == pytest.approx(0.02) and sigmas[32] == 0
    roots = np.array(sigmas[:-1]) ** (1 / 7)
    np.testing.assert_allclose(np.diff(roots), np.diff(roots)[0])
