"""How common every code is among the records that a condition would give, without drawing them."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.records import Records
from worker.engine.conditioning import size_probability
from worker.engine.denoisers import Denoiser
from worker.engine.noise import ABSENT, HIDDEN, PRESENT

# Known codes of each record -> the share of records with all of them that have each code, (R, N).
ConditionalPrevalence = Callable[[Records], NDArray[np.float32]]
# A record's number of codes is drawn first; so many of its quantiles stand for all of them.
QUANTILES = 6
ROWS = 1024


@torch.no_grad()
def revealed_prevalence(denoiser: Denoiser, device: torch.device, known: Records) -> NDArray[np.float32]:
    """For noise that reveals: P(code | these are present, nothing else is known), averaged over sizes, (R, N).

    It is what the sampler begins with. What it goes on to reveal changes each record's probabilities, but hardly their
    average, which is the share of records that end up with the code.
    """
    denoiser.eval()
    shares = np.empty((len(known), known.n_codes), dtype=np.float32)
    for start in range(0, len(known), ROWS):
        rows = slice(start, min(start + ROWS, len(known)))
        present = torch.from_numpy(known.take(np.arange(rows.start, rows.stop)).to_dense(np.uint8)).to(device)
        x = _start(present, denoiser)
        sizes = size_probability(denoiser, x)
        asked: list[Tensor | None] = [None] if sizes is None else [*_quantiles(sizes)]
        p = torch.stack([_probability(denoiser, x, size) for size in asked]).mean(0)
        shares[rows] = torch.where(present == PRESENT, 1.0, p).cpu().numpy()
    return shares


def _start(present: Tensor, denoiser: Denoiser) -> Tensor:
    x = torch.where(present == PRESENT, PRESENT, HIDDEN).to(torch.uint8)
    groups = denoiser.noise.groups
    if len(groups):  # a member that is there tells that the others are absent
        settled = groups.holds(x, PRESENT)[:, groups.segment]
        members = x[:, groups.codes]
        x[:, groups.codes] = torch.where(settled & (members == HIDDEN), ABSENT, members).to(torch.uint8)
    return x


def _quantiles(sizes: Tensor) -> list[Tensor]:
    """Sizes (B,) at evenly spread quantiles of their distribution (B, largest size + 1)."""
    cumulative = sizes.cumsum(1)
    at = [(k + 0.5) / QUANTILES for k in range(QUANTILES)]
    level = [torch.full((len(sizes), 1), q, dtype=cumulative.dtype, device=sizes.device) for q in at]
    return [torch.searchsorted(cumulative, q).squeeze(1).clamp(max=sizes.shape[1] - 1) for q in level]


def _probability(denoiser: Denoiser, x: Tensor, size: Tensor | None) -> Tensor:
    logits = denoiser.reading(x, size).logits(torch.arange(denoiser.n_codes, device=x.device))
    return denoiser.noise.groups.in_full(logits, x == HIDDEN)
