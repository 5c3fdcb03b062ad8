"""What the two Wasserstein GANs share: the critic's loss with its gradient penalty, the turns, and drawing."""

from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from ehr.errors import ConfigError
from ehr.generators.baseline import WganConfig
from worker.engine.generators.baselines.base import Baseline
from worker.engine.generators.baselines.networks import Optimisers
from worker.engine.generators.protocol import SampleRequest

NORM_MOMENTUM = 0.01  # of batch norm: both publications keep 0.99 of the running statistics


class Adversaries(nn.Module):
    """The two networks that train against each other."""

    def __init__(self, generator: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.generator, self.critic = generator, critic

    def logits(self, noise: Tensor) -> Tensor:
        """Log odds of every code, (rows, N), of the records that the noise stands for."""
        made: Tensor = self.generator(noise)
        return made

    def start_as_tensorflow(self) -> Self:
        """Glorot's uniform weights and no biases, the start of both publications."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        return self


class Residual(nn.Module):
    """x + layer(x)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.layer(x)
        return added


class Wgan(Baseline):
    """A step is one of the critic on new records; every `critic_steps`-th is followed by one of the generator."""

    settings: WganConfig
    network: Adversaries
    training_only: ClassVar[tuple[str, ...]] = ("critic.",)

    def steps_of(self, request: SampleRequest) -> int:
        if request.steps not in (None, 1):
            raise ConfigError(f"'{self.spec.name}' makes one network call for a record, not {request.steps}")
        return 1

    def train_step(self, x: Tensor, optimisers: Optimisers, step: int, total: int, generator: torch.Generator) -> float:
        """The loss is the critic's estimate of the Wasserstein distance, which shrinks as records become alike."""
        critic = self.network.critic
        with torch.no_grad():
            made = self._made(len(x), generator)
        distance = critic(x).mean() - critic(made).mean()
        penalty = gradient_penalty(critic, x, made, generator)
        descend(optimisers["critic"], self.settings.penalty * penalty - distance)
        if (step + 1) % self.settings.critic_steps == 0:
            descend(optimisers["generator"], -critic(self._made(len(x), generator)).mean())
        return float(distance.detach())

    def draw(self, rows: int, generator: torch.Generator, steps: int | None) -> Tensor:
        probability = self._made(rows, generator)
        if self.settings.binarise == "round":
            return probability > 0.5
        return torch.rand(probability.shape, generator=generator, device=self.device) < probability

    def adam(self, *parts: nn.Module) -> torch.optim.Optimizer:
        """Adam over all weights of these parts."""
        weights = [weight for part in parts for weight in part.parameters()]
        settings = self.settings
        return torch.optim.Adam(weights, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)

    def _made(self, rows: int, generator: torch.Generator) -> Tensor:
        """Probabilities of codes, (rows, N): what the critic sees of made records."""
        noise = torch.randn(rows, self.settings.noise_width, generator=generator, device=self.device)
        return self.network.logits(noise).float().sigmoid()


def gradient_penalty(critic: nn.Module, real: Tensor, made: Tensor, generator: torch.Generator) -> Tensor:
    """How far the critic's slope is from 1 at points between real and made records (Gulrajani et al. 2017)."""
    share = torch.rand(len(real), 1, generator=generator, device=real.device)
    between = (real + share * (made - real)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty: Tensor = ((slope.float().norm(dim=1) - 1) ** 2).mean()
    return penalty


def descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step of the optimiser; gradients of other networks' weights on the way are not its own."""
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient
    optimiser.step()
