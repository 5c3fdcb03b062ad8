"""What the sparse denoiser's trunk is made of."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SharedDropout(nn.Module):
    """Dropout whose masks are shared by groups of 8 records.

    torch draws random numbers on one core: a mask for each record took a seventh of a training step on CPU.
    """

    GROUP = 8

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, h: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return h
        masks = torch.empty(-(-len(h) // self.GROUP), h.shape[1], device=h.device).bernoulli_(1 - self.p)
        return h * masks.div_(1 - self.p).repeat(self.GROUP, 1)[: len(h)]


class ResidualBlock(nn.Module):
    """LayerNorm, two linear layers with a GELU between them, and the residual; starts as the identity."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.dropout = SharedDropout(dropout)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = h + self.down(self.dropout(F.gelu(self.up(self.norm(h)))))
        return out
