"""Langevin guidance on the last-layer latent y, as in the paper's section on conditional generation.

    y <- y - eta * grad[ lambda * KL(p(x_0 | y) || p(x_0 | y^(0))) - V(y) ] + sqrt(2 * eta * tau) * noise

y has two entries for each code, the softmax's inputs for absent and present; everything depends on their difference
l = y_present - y_absent, the log-odds. An energy V(y) = log p(c | y) is a function of l: (B, N) -> (B,).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ehr.conditions import Condition
from worker.engine.groups import GroupTable

# log p(c | logits) for each record: (B, N) -> (B,). Any differentiable function will do.
Energy = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ConditionEnergy:
    """log p(condition | y) when codes are independent given y, with its gradient in closed form.

    all_of: sum of log q.  none_of: sum of log(1 - q).  any_of: log(1 - prod(1 - q)) for each group. q = sigmoid(l).
    """

    condition: Condition
    groups: GroupTable | None = None  # members of which are asked for by the softmax's probabilities

    def __call__(self, logits: Tensor) -> Tensor:
        if self.groups is not None:
            logits = self.groups.log_odds(logits)
        energy = F.logsigmoid(logits[:, sorted(self.condition.all_of)]).sum(1)
        energy = energy + F.logsigmoid(-logits[:, sorted(self.condition.none_of)]).sum(1)
        for group in self.condition.any_of:
            log_none = F.logsigmoid(-logits[:, sorted(group)]).sum(1)
            energy = energy + _log1mexp(log_none)
        return energy

    def gradient(self, logits: Tensor) -> Tensor:
        """dV/dl, (B, N); zero for every code the condition does not name."""
        if self.groups is not None:
            logits = self.groups.log_odds(logits)
        gradient = torch.zeros_like(logits)
        q = torch.sigmoid(logits)
        for code in self.condition.all_of:
            gradient[:, code] += 1 - q[:, code]
        for code in self.condition.none_of:
            gradient[:, code] -= q[:, code]
        for group in self.condition.any_of:
            codes = sorted(group)
            log_none = F.logsigmoid(-logits[:, codes]).sum(1, keepdim=True)
            # d/dl_a log(1 - prod(1 - q)) = q_a * none / (1 - none)
            gradient[:, codes] += q[:, codes] * torch.exp(log_none - _log1mexp(log_none))
        return gradient


@dataclass(frozen=True)
class ClassifierEnergy:
    """log p(c | y) from a user's classifier, evaluated at the expected record.

    The paper's sum over all x_0 has 2^N terms; `log_probability` is asked once for the record of probabilities
    sigmoid(l) (B, N) instead, and must be differentiable in it.
    """

    log_probability: Callable[[Tensor], Tensor]

    def __call__(self, logits: Tensor) -> Tensor:
        return self.log_probability(torch.sigmoid(logits))


@dataclass(frozen=True)
class LangevinGuidance:
    """A guide for the sampler: `iterations` Langevin steps on the latent at every t.

    eta, lambda and the 10 iterations are the paper's. It does not name tau; its appendix says noise is usually set to
    zero in practice. The default keeps it small: noise falls on every code, and at tau = 1 rare codes would appear
    seven times too often. `strength` multiplies V; 0 leaves the logits untouched and draws nothing.
    """

    energy: Energy
    strength: float = 1.0
    eta: float = 0.1
    kl_weight: float = 0.01  # lambda
    temperature: float = 1e-3  # tau
    iterations: int = 10

    def __call__(self, logits: Tensor, x_t: Tensor, t: Tensor, generator: torch.Generator) -> Tensor:
        if self.strength == 0:
            return logits
        start, current = logits, logits
        for _ in range(self.iterations):
            q = torch.sigmoid(current)
            kl_gradient = q * (1 - q) * (current - start)  # of KL(p(x_0 | y) || p(x_0 | y0)) in l
            drift = self.strength * self._energy_gradient(current) - self.kl_weight * kl_gradient
            # A step on l is twice a step on y: l = y_present - y_absent, and their gradients are opposite.
            current = current + 2 * self.eta * drift
            if self.temperature > 0:
                noise = torch.randn((*logits.shape, 2), generator=generator, device=logits.device)
                current = current + (2 * self.eta * self.temperature) ** 0.5 * (noise[..., 1] - noise[..., 0])
        return current

    def _energy_gradient(self, logits: Tensor) -> Tensor:
        """dV/dl in closed form where the energy knows it, else by autograd, (B, N)."""
        if isinstance(self.energy, ConditionEnergy):
            return self.energy.gradient(logits)
        with torch.enable_grad():
            variable = logits.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.energy(variable).sum(), variable)
        return gradient


def _log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x < 0, accurate at both ends."""
    x = x.clamp(max=-1e-30)
    near = x > -0.6931
    # The branch not taken must have a finite gradient too, or 0 * inf = NaN reaches the logits.
    return torch.where(near, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x.masked_fill(near, -1.0))))
