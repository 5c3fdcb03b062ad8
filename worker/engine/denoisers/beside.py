"""What a denoiser may be told of a record beside its codes."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Beside:
    """What is known of records beside their own codes, such as a patient's earlier visits, ready to be added."""

    trunk: Tensor  # (B, width), to the input of the trunk
    logits: Tensor  # (B, N)
    size: Tensor  # (B, width of the size network), to its input

    def take(self, rows: Tensor) -> "Beside":
        return Beside(self.trunk[rows], self.logits[rows], self.size[rows])

    def and_then(self, others: "Beside") -> "Beside":
        """The same for more records."""
        pairs = ((self.trunk, others.trunk), (self.logits, others.logits), (self.size, others.size))
        return Beside(*(torch.cat(pair) for pair in pairs))
