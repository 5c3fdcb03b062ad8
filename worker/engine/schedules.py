"""How much of a record survives the noise: abar_t for t = 0..T, with abar_0 = 1.

Time runs from 1 (almost clean) to T (pure noise) everywhere in the engine. Tables are float64: the posterior divides
by differences of neighbouring entries.
"""

import torch
from torch import Tensor

from ehr.errors import ConfigError


def cosine(timesteps: int, s: float = 0.008) -> Tensor:
    """The schedule of the paper's code family (multinomial diffusion), (T + 1,).

    Per-step alpha_t is the ratio of cos^2((t/T + s)/(1 + s) * pi/2), clipped to [0.001, 1], then square-rooted; so abar
    follows a cosine, not its square.
    """
    t = torch.arange(timesteps + 1, dtype=torch.float64)
    f = torch.cos((t / timesteps + s) / (1 + s) * torch.pi / 2) ** 2
    alpha = (f[1:] / f[:-1]).clamp(0.001, 1.0).sqrt()
    return torch.cat([torch.ones(1, dtype=torch.float64), alpha.cumprod(0)])


def linear(timesteps: int) -> Tensor:
    """abar_t = 1 - t/T: under absorbing noise each code is hidden at time t with probability t/T, (T + 1,)."""
    return 1 - torch.arange(timesteps + 1, dtype=torch.float64) / timesteps


def strided_times(timesteps: int, steps: int) -> list[int]:
    """The times a sampler with `steps` network calls visits: T = first > ... > last = 0, as even as integers allow."""
    if not 1 <= steps <= timesteps:
        raise ConfigError(f"steps must be between 1 and the {timesteps} the process has, not {steps}")
    return [timesteps * k // steps for k in range(steps, -1, -1)]
