"""Training on what a condition shows: one to three present codes and nothing else.

The noise hides codes whether present or not, so a rare code as the only thing known is seldom seen. Here a few present
codes are picked on purpose, and the network predicts everything else from them; another network (sizes.py) predicts
the number of codes.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.denoisers import UNKNOWN_SIZE
from worker.engine.groups import GroupTable
from worker.engine.noise import HIDDEN, PRESENT

# How many present codes are shown, and how often.
SHOWN = torch.tensor([0.1, 0.5, 0.25, 0.15])
# Besides, half of the records show a share of all their codes, present or not: what none_of and any_of make known.
BACKGROUND = (1e-3, 0.3)


@dataclass(frozen=True)
class Contexts:
    """Records, what is shown of them, and how much each counts."""

    x_start: Tensor  # (B, N)
    x_known: Tensor  # (B, N), HIDDEN where nothing is shown
    weight: Tensor  # (B,), for records whose size is not shown
    size_shown: Tensor  # (B,) bool
    groups: GroupTable

    @classmethod
    def draw(cls, x_start: Tensor, generator: torch.Generator, groups: GroupTable) -> "Contexts":
        """Show some codes of each record, and of every other record its size."""
        rows, device = len(x_start), x_start.device
        shown = torch.multinomial(SHOWN.to(device), rows, replacement=True, generator=generator)
        picks = torch.multinomial(x_start + 1e-9, len(SHOWN) - 1, replacement=True, generator=generator)
        picked = torch.zeros(x_start.shape, dtype=torch.bool, device=device)
        for k in range(picks.shape[1]):
            picked[torch.arange(rows, device=device), picks[:, k]] |= k < shown
        low, high = BACKGROUND
        rate = low * (high / low) ** torch.rand(rows, 1, generator=generator, device=device)
        rate = rate * (torch.rand(rows, 1, generator=generator, device=device) < 0.5)
        seen = torch.rand(x_start.shape, generator=generator, device=device) < rate
        x_known = torch.where((picked & (x_start == PRESENT)) | seen, x_start, HIDDEN).to(torch.uint8)
        if len(groups):  # a member that is shown tells that the others are absent
            known = groups.holds(x_known, PRESENT)[:, groups.segment]
            x_known[:, groups.codes] = torch.where(known, x_start[:, groups.codes], x_known[:, groups.codes])
        # A given code of a record with many codes is picked less often than that of a record with few: without a weight
        # the network would learn that patients with the code have few others. A pick has probability 1 / size.
        sizes = x_start.sum(1).float()
        power = sizes.unsqueeze(1) ** torch.arange(len(SHOWN), device=device)  # (B, 4)
        weight = (power / power.mean(0).clamp(min=1e-9)).gather(1, shown.unsqueeze(1)).squeeze(1)
        return cls(x_start, x_known, weight, torch.arange(rows, device=device) % 2 == 1, groups)

    def share(self, rows: slice) -> "Contexts":
        """Some of the records."""
        return Contexts(self.x_start[rows], self.x_known[rows], self.weight[rows], self.size_shown[rows], self.groups)

    @property
    def size(self) -> Tensor:
        """What the network is told of each record's size, (B,)."""
        return torch.where(self.size_shown, self.x_start.sum(1), UNKNOWN_SIZE)

    def times(self, timesteps: int) -> Tensor:
        """The time at which the noise hides about as much, (B,)."""
        hidden = (self.x_known == HIDDEN).float().mean(1)
        return (hidden * timesteps).round().long().clamp(1, timesteps)

    def loss(self, logits: Tensor) -> Tensor:
        """-log p(what is hidden | what is shown) with each hidden code predicted on its own, (B,) nats."""
        nll = F.softplus(torch.where(self.x_start == PRESENT, -logits, logits))
        hidden = self.x_known == HIDDEN
        loss = self.groups.with_nll(nll * hidden, logits, self.x_start, hidden).sum(1)
        return torch.where(self.size_shown, loss, loss * self.weight)

    def size_loss(self, log_probability: Tensor) -> Tensor:
        """-log p(number of codes | what is shown), (B,) nats, from the logits of each number."""
        target = self.x_start.sum(1).clamp(max=log_probability.shape[1] - 1)
        return F.cross_entropy(log_probability, target, reduction="none") * self.weight
