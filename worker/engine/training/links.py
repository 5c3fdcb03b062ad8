"""How the pairwise table learns: each link towards its most likely value, given the patients who stand behind it.

AdamW makes steps of one size for every weight, so that its decay is a bound for the links of diabetes as for those of
a code that ten patients have. Here a link w has a Gaussian prior around 0 that counts as `prior` patients, and descends
by its own curvature, which is known beforehand: how often its two codes are expected together. A link with many
patients behind it becomes as strong as they say; one with few stays near 0.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

RATE = 0.01  # of the way to the optimum, at the full learning rate
LONGEST_STEP = 0.2
# Of the moments at which a code is asked for, those at which another one is known: time is uniform.
KNOWN = 0.5


@dataclass(frozen=True)
class LinkDescent:
    """Descent of the tables `links` (N, N)."""

    links: list[nn.Parameter]
    together: Tensor  # (N, N) patients who have both codes, or as many as chance would give
    patients: int
    prior: float

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move every link by its gradient (a mean over patients) and forget it; `rate`: of the full learning rate."""
        for link in self.links:
            if link.grad is None:
                continue
            # In place: tables of a million links are slow to read, not to reckon with.
            newton = link.grad.add_(link, alpha=self._pull).mul_(self._per_gradient)
            link.sub_(newton.mul_(rate).clamp_(-LONGEST_STEP, LONGEST_STEP))
            link.grad = None  # the optimiser of the other weights passes over it

    @property
    def _pull(self) -> float:
        return self.prior / self.patients

    @cached_property
    def _per_gradient(self) -> Tensor:
        """How far a link goes for its gradient, by its curvature, (N, N)."""
        return RATE / (KNOWN * self.together / self.patients + self._pull)
