"""How many codes will a record have, given the few that are known? And what does its size say of those to come?

A condition fixes a handful of codes; the number of codes is drawn next, before all others. A head on the denoiser saw
too few such moments to be right in a slice (docs/decisions/0013). This network is so small that it can see many more.
Once the size is drawn it is certain, and the log-odds of the codes to come are shifted until they add up to it
(docs/decisions/0086).
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ehr.disclosure import largest_shown
from worker.engine.groups import CERTAIN, GroupTable
from worker.engine.noise import ABSENT, PRESENT

WIDTH = 128
# A record whose hidden codes are farther from its size than this (log-odds) is one that networks do not understand.
MOST_SHIFT = 1.5


def size_counts(sizes: NDArray[np.int64], largest: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many records (R,) have 0, 1, 2, ... codes. The last entry stands for whatever is larger than 11 patients have
    it, by the `largest` record of each: no patient's own size is where all drawn records end."""
    most = largest_shown(largest)
    return np.bincount(sizes.clip(max=most + 1), minlength=most + 2)


class SizeNetwork(nn.Module):
    """Present and absent codes -> one hidden residual layer -> log p(size); starts as the sizes of all records."""

    log_sizes: Tensor

    def __init__(self, n_codes: int, sizes: Tensor) -> None:
        """`sizes` (largest size + 1,): the share of records with each number of codes."""
        super().__init__()
        self.present = nn.Linear(n_codes, WIDTH)
        self.absent = nn.Linear(n_codes, WIDTH, bias=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, len(sizes))
        nn.init.normal_(self.present.weight, std=0.3)
        for weight in (self.absent.weight, self.present.bias, self.out.weight, self.out.bias):
            nn.init.zeros_(weight)
        share = sizes.double() + 1e-6
        self.register_buffer("log_sizes", torch.log(share / share.sum()).float())

    def forward(self, x_known: Tensor, beside: Tensor | None = None) -> Tensor:
        """log p(size | what is known) up to a constant, (B, largest size + 1), from (B, N) states.

        `beside` (B, WIDTH): what is known besides.
        """
        h = self.present((x_known == PRESENT).float()) + self.absent((x_known == ABSENT).float())
        h = h if beside is None else h + beside
        h = h + self.hidden(F.gelu(self.norm(h)))
        logits: Tensor = self.out(F.gelu(h)).float() + self.log_sizes
        return logits


@torch.no_grad()
def shift_to_size(
    logits: Tensor, is_open: Tensor | None, left: Tensor, groups: GroupTable | None, elsewhere: Tensor | None = None
) -> Tensor:
    """What to add to the log-odds of each record's open codes, so that they add up to the codes that are left, (B, 1).

    A record of a known size has just `left` (B,) codes among its open ones (B, C), None for all, which independent
    log-odds (B, C) keep on average only. The gradient of the loss does not see the shift: moving all open codes
    together changes nothing where they add up already. Members of `groups` (columns of the C) are left alone, their
    number is certain. So many codes (B,) are expected `elsewhere` before a shift, among rare open ones not asked.
    """
    to_come = left.float()
    members = None if groups is None or len(groups) == 0 else groups.codes
    if groups is not None and members is not None:
        of_members = logits[:, members]
        is_open_member = torch.ones_like(of_members, dtype=torch.bool) if is_open is None else is_open[:, members]
        p = groups.probability(of_members, is_open_member)
        to_come = to_come - torch.where(is_open_member, p, 0.0).sum(1)
    wanted = torch.log(to_come.clamp(min=1e-6))
    shift = torch.zeros_like(wanted)
    for step in range(2):  # Newton's on the logarithm of the sum, of which the first is nearly exact for rare codes
        p = torch.sigmoid(logits.float()) if step == 0 else (logits.float() + shift.unsqueeze(1)).sigmoid_()
        if is_open is not None:
            p.mul_(is_open)
        if members is not None:
            p[:, members] = 0.0
        total = p.sum(1) if elsewhere is None else p.sum(1) + elsewhere * shift.exp()
        total = total.clamp(min=1e-9)
        slope = (total - torch.linalg.vector_norm(p, dim=1).square()).clamp(min=1e-9) / total
        shift = (shift + (wanted - total.log()) / slope).clamp(-MOST_SHIFT, MOST_SHIFT)
    return torch.where(left <= 0, -CERTAIN, shift).unsqueeze(1)
