"""The training objective and the number by which models are compared: the evidence lower bound.

    -log p(x_0) <= -log p(size) + KL(q(x_T | x_0) || pi) + sum over t = 1..T of L_t
    L_t = E KL(q(x_{t-1} | x_t, x_0) || p(x_{t-1} | x_t)), at t = 1 the decoder term -log p(x_0 | x_1)

The sum over t is estimated from one drawn t as L_t / p(t). `size`, the number of codes in the record, is a function
of x_0, so p(x_0) >= p(size) p(x_0 | size) and the bound holds for denoisers that are told the size.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ehr.records import Records
from worker.engine.denoisers.base import Denoiser
from worker.engine.noise import Noise


def elbo_terms(
    logits: Tensor, noise: Noise, x_start: Tensor, x_t: Tensor, t: Tensor, auxiliary_weight: float = 0.0
) -> tuple[Tensor, Tensor]:
    """(L_t, L_t + auxiliary_weight / T * cross-entropy of x_0) for each record, nats, (B,) each."""
    x_0 = x_start.to(logits.dtype)
    l_t = noise.posterior_kl(logits, x_0, x_t, t).sum(1)
    if auxiliary_weight == 0:
        return l_t, l_t
    cross_entropy = (F.softplus(logits) - x_0 * logits).sum(1)
    return l_t, l_t + auxiliary_weight / noise.timesteps * cross_entropy


class TimeSampler:
    """Draws t from a table p(t), stratified over the batch so that every batch covers the range evenly."""

    def __init__(self, timesteps: int) -> None:
        self.timesteps = timesteps
        self.probability = torch.full((timesteps,), 1 / timesteps, dtype=torch.float64)  # of t = 1..T

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(t, p(t)) for n records, (n,) each, in random order."""
        stratum = torch.randperm(n, generator=generator, device=generator.device)
        quantile = (stratum + torch.rand(n, generator=generator, device=generator.device)).double() / n
        cumulative = self.probability.cumsum(0).to(generator.device)
        index = torch.searchsorted(cumulative, quantile).clamp(max=self.timesteps - 1)
        return index + 1, self.probability.to(generator.device)[index]

    def update(self, t: Tensor, l_t: Tensor) -> None:
        """Learn from the losses of a batch; a fixed table learns nothing."""

    def state(self) -> dict[str, Tensor]:
        """What must be saved to go on exactly, as tensors."""
        return {}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""


class PowerTimes(TimeSampler):
    """p(t) proportional to t^-1/2, which evens out the gradient noise of the 1/t-weighted loss of absorbing noise."""

    def __init__(self, timesteps: int) -> None:
        super().__init__(timesteps)
        weight = torch.arange(1, timesteps + 1, dtype=torch.float64) ** -0.5
        self.probability = weight / weight.sum()


class ImportanceTimes(TimeSampler):
    """p(t) proportional to sqrt(E[L_t^2]) (improved DDPM), uniform until every t was seen more than 10 times."""

    DECAY, WARM_UP = 0.9, 10

    def __init__(self, timesteps: int) -> None:
        super().__init__(timesteps)
        self.mean_square = torch.zeros(timesteps, dtype=torch.float64)
        self.seen = torch.zeros(timesteps, dtype=torch.int64)

    def update(self, t: Tensor, l_t: Tensor) -> None:
        index, square = t.cpu() - 1, l_t.detach().double().cpu() ** 2
        count = torch.bincount(index, minlength=self.timesteps)
        mean = torch.bincount(index, weights=square, minlength=self.timesteps) / count.clamp(min=1)
        # A batch with k losses at one t moves its mean as k single updates would.
        keep = torch.where(self.seen == 0, 0.0, self.DECAY ** count.double())
        self.mean_square = torch.where(count > 0, keep * self.mean_square + (1 - keep) * mean, self.mean_square)
        self.seen += count
        self._refresh()

    def _refresh(self) -> None:
        if bool((self.seen > self.WARM_UP).all()):
            root = self.mean_square.sqrt() + 1e-12
            # A little of the uniform keeps p(t) away from 0, and so the weight 1/p(t) bounded.
            self.probability = 0.99 * root / root.sum() + 0.01 / self.timesteps

    def state(self) -> dict[str, Tensor]:
        return {"mean_square": self.mean_square, "seen": self.seen}

    def load(self, state: dict[str, Tensor]) -> None:
        self.mean_square, self.seen = state["mean_square"].clone(), state["seen"].clone()
        self._refresh()


@dataclass(frozen=True)
class Elbo:
    """A negative ELBO in nats per record (lower is better) and its standard error over records."""

    value: float
    standard_error: float


@torch.no_grad()
def held_out_elbo(
    denoiser: Denoiser,
    noise: Noise,
    records: Records,
    generator: torch.Generator,
    draws: int = 4,
    batch_size: int = 1024,
) -> Elbo:
    """The negative ELBO of records the model has not seen, estimated the same way for every noise and network.

    Each record gets `draws` times t, uniform and stratified; the standard error is over records, so it covers both
    the choice of records and the draws.
    """
    training = denoiser.training
    denoiser.eval()
    per_record = np.zeros(len(records))
    times = TimeSampler(noise.timesteps)
    for start in range(0, len(records), batch_size):
        rows = np.arange(start, min(start + batch_size, len(records)))
        x_start = torch.from_numpy(records.take(rows).to_dense(np.uint8)).to(generator.device)
        total = noise.prior_kl(x_start)
        if denoiser.size_log_prior is not None:
            sizes = x_start.sum(1).clamp(max=len(denoiser.size_log_prior) - 1)
            total = total - denoiser.size_log_prior[sizes]
        for _ in range(draws):
            t, probability = times.draw(len(rows), generator)
            x_t = noise.q_sample(x_start, t, generator)
            l_t, _ = elbo_terms(denoiser.in_batches(x_t, t, x_start.sum(1)), noise, x_start, x_t, t)
            total = total + l_t / probability / draws
        per_record[rows] = total.cpu().numpy()
    denoiser.train(training)
    error = float(per_record.std(ddof=1) / np.sqrt(len(records))) if len(records) > 1 else float("inf")
    return Elbo(float(per_record.mean()), error)


# Shares of the time at which the noise stands when a record's loss is taken.
LOSS_TIMES = (0.1, 0.3, 0.6, 0.9)


@torch.no_grad()
def record_losses(
    denoiser: Denoiser, noise: Noise, device: torch.device, records: Records, seed: int, draws: int
) -> NDArray[np.float64]:
    """T L_t of each record at LOSS_TIMES, the mean of `draws` noises each, (R, times)."""
    denoiser.eval()
    generator = torch.Generator(device).manual_seed(seed)
    x_start = torch.from_numpy(records.to_dense(np.uint8)).to(device)
    losses = np.zeros((len(records), len(LOSS_TIMES)))
    for place, share in enumerate(LOSS_TIMES):
        t = torch.full((len(records),), max(1, round(share * noise.timesteps)), device=device)
        for _ in range(draws):
            x_t = noise.q_sample(x_start, t, generator)
            l_t, _ = elbo_terms(denoiser.in_batches(x_t, t, x_start.sum(1)), noise, x_start, x_t, t)
            losses[:, place] += noise.timesteps * l_t.double().cpu().numpy() / draws
    return losses
