"""Ancestral sampling: walk from x_T to x_0 through the mixture posterior, one network call for each step."""

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from worker.engine.noise import Noise
from worker.engine.schedules import strided_times

# A bound denoiser: (x_t (B, N), t (B,)) -> logits (B, N).
Denoise = Callable[[Tensor, Tensor], Tensor]


class Guide(Protocol):
    """Changes the logits of a step so that the record moves towards a condition."""

    def __call__(self, logits: Tensor, x_t: Tensor, t: Tensor, generator: torch.Generator) -> Tensor: ...


@torch.no_grad()
def ancestral_sample(
    denoise: Denoise,
    noise: Noise,
    n: int,
    steps: int,
    generator: torch.Generator,
    guide: Guide | None = None,
) -> Tensor:
    """Draw n records x_0 in `steps` <= T network calls, (n, N) uint8 of 0 and 1.

    Any number of steps works with the same network: the posterior jumps from t to any u < t.
    """
    times = strided_times(noise.timesteps, steps)
    device = generator.device
    x_t = noise.prior_sample(n, generator, device)
    for t_now, u_next in pairwise(times):
        t = torch.full((n,), t_now, device=device)
        logits = denoise(x_t, t)
        if guide is not None:
            logits = guide(logits, x_t, t, generator)
        # All records share t: one row of it broadcasts over the batch.
        x_t = noise.p_sample(logits, x_t, t[:1], torch.full((1,), u_next, device=device), generator)
    return x_t
