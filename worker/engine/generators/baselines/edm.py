"""Gaussian diffusion as in Karras et al. 2022 (EDM): preconditioning, loss and Heun's sampler.

x_sigma = x_0 + sigma * noise. A network F(c_in * x_sigma, c_noise) becomes a denoiser D, an estimate of
E[x_0 | x_sigma], by D = c_skip * x_sigma + c_out * F, with coefficients that keep the input and the target of F at
variance 1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ehr.errors import ConfigError
from worker.engine.generators.baselines.base import Baseline
from worker.engine.generators.protocol import SampleRequest

# (c_in * x_sigma (B, D), c_noise (B,), or (1,) for all) -> F (B, D)
Network = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class EDM:
    """The noise levels of a diffusion; `log_mean` and `log_deviation` are of the levels drawn in training."""

    sigma_data: float
    sigma_min: float
    sigma_max: float = 80.0
    rho: float = 7.0
    log_mean: float = -1.2
    log_deviation: float = 1.2
    churn: float = 0.0  # how much fresh noise the sampler adds; 0 follows the deterministic path

    def denoised(self, network: Network, x: Tensor, sigma: Tensor) -> Tensor:
        """D(x, sigma), (B, D); sigma (B, 1), or (1, 1) for all."""
        total = sigma**2 + self.sigma_data**2
        c_skip, c_out, c_in = self.sigma_data**2 / total, sigma * self.sigma_data / total.sqrt(), 1 / total.sqrt()
        return c_skip * x + c_out * network(c_in * x, sigma.squeeze(1).log() / 4).float()

    def loss(self, network: Network, x: Tensor, generator: torch.Generator) -> Tensor:
        """The weighted squared error of D, which is the plain squared error of F; the mean over records and values."""
        level = torch.randn(len(x), 1, generator=generator, device=x.device)
        sigma = (self.log_mean + self.log_deviation * level).exp()
        noise = torch.randn(x.shape, generator=generator, device=x.device)
        weight = (sigma**2 + self.sigma_data**2) / (sigma * self.sigma_data) ** 2
        return (weight * (self.denoised(network, x + sigma * noise, sigma) - x) ** 2).mean()

    def sigmas(self, steps: int) -> list[float]:
        """The noise levels a sampler visits: sigma_max = first > ... > sigma_min, then 0."""
        first, last = self.sigma_max ** (1 / self.rho), self.sigma_min ** (1 / self.rho)
        return [(first + k / max(steps - 1, 1) * (last - first)) ** self.rho for k in range(steps)] + [0.0]

    def sample(self, network: Network, shape: tuple[int, int], steps: int, generator: torch.Generator) -> Tensor:
        """Draw x_0 in `steps` Heun steps, (rows, D)."""
        device = generator.device

        def slope(x: Tensor, sigma: float) -> Tensor:
            return (x - self.denoised(network, x, torch.full((1, 1), sigma, device=device))) / sigma

        sigmas = self.sigmas(steps)
        x = torch.randn(shape, generator=generator, device=device) * sigmas[0]
        for now, after in pairwise(sigmas):
            start = now * (1 + min(self.churn / steps, math.sqrt(2) - 1))
            if start > now:
                x = x + math.sqrt(start**2 - now**2) * torch.randn(shape, generator=generator, device=device)
            here = slope(x, start)
            there = x + (after - start) * here
            x = x + (after - start) * (here + slope(there, after)) / 2 if after > 0 else there
        return x


class HeunBaseline(Baseline):
    """A baseline that samples by Heun steps: two network calls each but the last, which ends without noise."""

    def steps_of(self, request: SampleRequest) -> int:
        return 2 * self.heun_steps(request.steps) - 1

    def heun_steps(self, calls: int | None) -> int:
        """The most steps that no more than `calls` network calls allow; the settings' number where none are given."""
        if calls is not None and calls < 1:
            raise ConfigError(f"steps must be 1 or more, not {calls}")
        return int(self.settings.sampling_steps) if calls is None else (calls + 1) // 2
