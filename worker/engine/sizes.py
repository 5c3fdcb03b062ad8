"""How many codes will a record have, given the few that are known? A small network of its own.

A condition fixes a handful of codes; the number of codes is drawn next, before all others. A head on the denoiser saw
too few such moments to be right in a slice (docs/decisions/0013). This network is so small that it can see many more.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from worker.engine.noise import ABSENT, PRESENT

WIDTH = 128


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
