"""What every denoiser is: a network that reads a noisy record and says how likely each code was there."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from worker.engine.denoisers.few_patients import CodeTables
from worker.engine.noise import ABSENT, HIDDEN, PRESENT, Noise

UNKNOWN_SIZE = -1


def is_present(x: Tensor) -> Tensor:
    """Of states (B, N) uint8, 1 where the code is present, else 0, (B, N) uint8. PRESENT alone is odd, and to ask for
    that takes a tenth of the time of a comparison."""
    return x.bitwise_and(1)


class Denoiser(nn.Module, ABC):
    """p_theta(x_0 | x_t) for all codes at once, as log-odds."""

    name: ClassVar[str]
    noise: Noise

    @property
    def n_codes(self) -> int:
        return self.noise.n_codes

    @abstractmethod
    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None = None) -> Tensor:
        """Log-odds of x_0 = 1, (B, N), from x_t (B, N) uint8 and t (B,).

        `size` (B,) is the number of codes in x_0, for denoisers that treat it as a variable of the record which is
        revealed before all codes (`size_log_prior` is then its distribution); others ignore it. UNKNOWN_SIZE, or None
        for all, stands for a size that is not revealed yet.
        """

    @property
    def code_tables(self) -> CodeTables:
        """Its weights that belong to single codes, where what few patients taught is to be restrained."""
        return CodeTables()

    def rows_per_call(self, device: torch.device) -> int:
        """How many records one call without gradients should take, so that activations stay within memory and cache."""
        return 1024

    def rows_per_gradient(self, device: torch.device) -> int | None:
        """How many records one call with gradients may take, so that activations stay within memory; None: any."""
        return None

    def in_batches(self, x_t: Tensor, t: Tensor, size: Tensor | None = None) -> Tensor:
        """`forward` for any number of records, a few at a time, (B, N)."""
        rows = self.rows_per_call(x_t.device)
        if len(x_t) <= rows:
            logits: Tensor = self(x_t, t, size)
            return logits
        parts = [slice(start, start + rows) for start in range(0, len(x_t), rows)]
        return torch.cat([self(x_t[part], t[part], None if size is None else size[part]) for part in parts])

    @property
    def size_log_prior(self) -> Tensor | None:
        """log p(number of codes in a record), (largest size + 1,), or None when the denoiser does not use it."""
        return None

    def size_log_probability(self, x_known: Tensor) -> Tensor | None:
        """log p(number of codes | what is known) up to a constant, (B, largest size + 1), or None as above."""
        prior = self.size_log_prior
        return None if prior is None else prior.expand(len(x_known), -1)

    def stand_alone(self) -> None:
        """Training is over: nothing is kept that was there for it alone."""

    def given_each(self, codes: Tensor) -> Tensor | None:
        """P(code | one code is known to be there, nothing else), (M, M) with a row for each known code, or None where
        asking so many questions would take longer than it helps."""
        return None

    def arranged(self, blocks: list[Tensor]) -> list[Tensor]:
        """Blocks of codes that are asked together, with the codes of each in the order that suits it."""
        return blocks

    def reading(self, x: Tensor, size: Tensor | None, beside: None = None, order: Tensor | None = None) -> "Reading":
        """How the network reads records (B, N) that are revealed step by step, for noises that reveal; in which `order`
        (N,), if that is known."""
        return Reading(self, x, size)


class Reading:
    """A batch of partly revealed records under the network's eyes: ask about some codes, reveal them, go on.

    This one asks the whole network each time. A denoiser that can do with less overrides `Denoiser.reading`.
    """

    def __init__(self, denoiser: Denoiser, x: Tensor, size: Tensor | None) -> None:
        self.denoiser, self.x, self.size = denoiser, x.clone(), size

    def logits(self, codes: Tensor) -> Tensor:
        """Log-odds of these codes given all that is revealed, (B, len(codes))."""
        timesteps = self.denoiser.noise.timesteps
        t = ((self.x == HIDDEN).float().mean(1) * timesteps).round().long().clamp(1, timesteps)
        return self.denoiser.in_batches(self.x, t, self.size)[:, codes]

    def every(self) -> Tensor:
        """The same of all codes, (B, N)."""
        return self.logits(torch.arange(self.denoiser.n_codes, device=self.x.device))

    def hidden(self, codes: Tensor) -> Tensor | None:
        """Of which of these codes nothing is known yet, (B, C); None: of all."""
        return self.x.index_select(1, codes) == HIDDEN

    def reveal(self, codes: Tensor, present: Tensor) -> None:
        """Reveal `codes` as `present` (B, len(codes)) says; what was known before stays as it was."""
        known = self.x[:, codes]
        drawn = torch.where(present, PRESENT, ABSENT).to(known.dtype)
        self.x[:, codes] = torch.where(known == HIDDEN, drawn, known)

    def add(self, rows: Tensor, codes: Tensor) -> None:
        """The codes, of which nothing was known, are present in these records, one in each."""
        self.x[rows, codes] = PRESENT

    def anew(self, x: Tensor, rows: Tensor) -> "Reading":
        """The records at `rows` once more, with the same codes present, and others absent or hidden."""
        return self.denoiser.reading(x, None if self.size is None else self.size[rows])

    def left(self) -> Tensor | None:
        """How many codes are still to come in each record, (B,); None when the network does not know."""
        return None if self.size is None else (self.size - (self.x == PRESENT).sum(1)).clamp(min=0)

    def keep(self, rows: Tensor) -> None:
        """Forget all records but `rows`."""
        self.x = self.x.index_select(0, rows)  # which copies rows whole, where indexing goes from number to number
        self.size = None if self.size is None else self.size[rows]


class TimeEmbedding(nn.Module):
    """Sinusoidal time -> Linear -> Softplus -> Linear (the paper's figure), one output slice for each layer."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.width, self.layers = width, layers
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.Softplus(), nn.Linear(4 * width, width * layers))

    def forward(self, t: Tensor) -> Tensor:
        half = self.width // 2
        frequency = torch.exp(-math.log(10_000) * torch.arange(half, device=t.device) / max(half - 1, 1))
        angle = t.unsqueeze(-1) * frequency  # (B, D/2)
        embedded = torch.cat([angle.sin(), angle.cos()], dim=-1)  # (B, D)
        slices: Tensor = self.mlp(embedded).view(len(t), self.layers, self.width)  # (B, L, D)
        return slices


def prior_logits(noise: Noise, prevalence: Tensor) -> Tensor:
    """The logits of knowing nothing but prevalences, (N,): log-odds, and for members of a group the softmax's."""
    logits = log_odds(prevalence)
    if len(noise.groups):
        logits[noise.groups.codes] = noise.groups.prior_logits(prevalence)
    return logits


def log_odds(prevalence: Tensor) -> Tensor:
    """The log-odds of each code's prevalence; a code nobody has gets a small chance, not none."""
    return torch.logit(prevalence.double().clamp(1e-6, 1 - 1e-6)).float()
