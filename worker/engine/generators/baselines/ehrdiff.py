"""EHRDiff (Yuan et al. 2023): Gaussian diffusion (EDM) on records as real vectors, made binary at the end."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from ehr.generators.ehrdiff import EHRDIFF, EHRDiffConfig
from worker.engine.generators.baselines.edm import EDM, HeunBaseline
from worker.engine.generators.baselines.networks import Optimisers, TimeEmbedding, gradient_step


class TimedBlock(nn.Module):
    """The time is added to what comes in; then ReLU, Linear."""

    def __init__(self, n_in: int, n_out: int, time_width: int) -> None:
        super().__init__()
        self.time = nn.Linear(time_width, n_in)
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        out: Tensor = self.linear(torch.relu(x + self.time(time)))
        return out


class TimedMLP(nn.Module):
    """N, the layers, N, with the time's embedding in every block; its sinusoids are as many as the codes."""

    def __init__(self, n_codes: int, settings: EHRDiffConfig) -> None:
        super().__init__()
        self.time = TimeEmbedding(2 * max(n_codes // 2, 1), settings.time_width)
        sizes = (n_codes, *settings.layers, n_codes)
        self.blocks = nn.ModuleList(TimedBlock(n_in, n_out, settings.time_width) for n_in, n_out in pairwise(sizes))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        time = self.time(t)
        for block in self.blocks:
            x = block(x, time)
        return x


class EHRDiff(HeunBaseline):
    """63 network calls for each record as published."""

    spec = EHRDIFF

    def build(self) -> nn.Module:
        self.edm = EDM(self.settings.sigma_data, self.settings.sigma_min, self.settings.sigma_max)
        return TimedMLP(self.n_codes, self.settings)

    def optimisers(self) -> Optimisers:
        rate = self.settings.learning_rate
        return {"denoiser": torch.optim.AdamW(self.network.parameters(), rate, weight_decay=0.0)}

    def train_step(self, x: Tensor, optimisers: Optimisers, step: int, total: int, generator: torch.Generator) -> float:
        warmup = min(self.settings.warmup_steps, total // 10)
        if step < warmup:
            factor = (step + 1) / warmup
        else:
            factor = 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
        loss = self.edm.loss(self.network, x, generator)
        return gradient_step(optimisers["denoiser"], loss, self.settings.learning_rate * factor)

    def draw(self, rows: int, generator: torch.Generator, steps: int | None) -> Tensor:
        x = self.edm.sample(self.network, (rows, self.n_codes), self.heun_steps(steps), generator)
        if self.settings.binarise == "round":
            return x > 0.5
        return torch.rand(x.shape, generator=generator, device=x.device) < x
