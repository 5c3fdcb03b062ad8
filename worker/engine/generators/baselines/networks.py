"""Networks and the gradient step that more than one of the diffusion baselines has."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

Optimisers = dict[str, torch.optim.Optimizer]  # by name


def sinusoidal(t: Tensor, width: int) -> Tensor:
    """Sines and cosines of t (B,) at width / 2 frequencies from 1 down to 1/10,000, (B, width)."""
    half = width // 2
    frequency = torch.exp(-math.log(10_000) * torch.arange(half, device=t.device) / half)
    angle = t.unsqueeze(-1) * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


class TimeEmbedding(nn.Module):
    """Sinusoids of the time, Linear, SiLU, Linear."""

    def __init__(self, sinusoids: int, width: int) -> None:
        super().__init__()
        self.sinusoids = sinusoids
        self.mlp = nn.Sequential(nn.Linear(sinusoids, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t: Tensor) -> Tensor:
        embedded: Tensor = self.mlp(sinusoidal(t, self.sinusoids))
        return embedded


class ProjectedMLP(nn.Module):
    """The denoiser of TabDDPM and TabSyn: project the input, add the time's embedding, then a plain MLP."""

    def __init__(self, size: int, width: int, layers: Sequence[int], activation: type[nn.Module]) -> None:
        super().__init__()
        self.project = nn.Linear(size, width)
        self.time = TimeEmbedding(width, width)
        hidden = [layer for pair in pairwise((width, *layers)) for layer in (nn.Linear(*pair), activation())]
        self.mlp = nn.Sequential(*hidden, nn.Linear(layers[-1], size))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """x (B, size), t (B,), or (1,) for all; (B, size)."""
        out: Tensor = self.mlp(self.project(x) + self.time(t))
        return out


def gradient_step(optimiser: torch.optim.Optimizer, loss: Tensor, rate: float) -> float:
    """One step down the gradient at this learning rate; the loss."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    optimiser.step()
    return float(loss.detach())
