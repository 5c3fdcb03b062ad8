"""medWGAN (Baowaly et al., JAMIA 2019): medGAN's autoencoder, generator and critic with the Wasserstein loss."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ehr.generators.med_wgan import MED_WGAN, MedWganConfig
from worker.engine.generators.baselines.networks import Optimisers
from worker.engine.generators.baselines.wgan import NORM_MOMENTUM, Adversaries, Residual, Wgan, descend

NORM_EPS = 1e-3  # the publication's library has this default


class MedNetworks(Adversaries):
    """An autoencoder, and a generator that makes what its decoder reads."""

    def __init__(self, n_codes: int, settings: MedWganConfig) -> None:
        width = settings.noise_width
        hidden = [Residual(_layer(width, nn.ReLU())) for _ in range(settings.layers)]
        super().__init__(nn.Sequential(*hidden, Residual(_layer(width, nn.Tanh()))), MeanCritic(n_codes, settings))
        self.encoder = nn.Sequential(nn.Linear(n_codes, width), nn.Tanh())
        self.decoder = nn.Linear(width, n_codes)
        self.start_as_tensorflow()

    def logits(self, noise: Tensor) -> Tensor:
        decoded: Tensor = self.decoder(self.generator(noise))
        return decoded

    def reconstruction_loss(self, x: Tensor) -> Tensor:
        """Cross-entropy between records and what the autoencoder makes of them, nats per record."""
        logits = self.decoder(self.encoder(x)).float()
        return F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)


class MeanCritic(nn.Module):
    """Sees each record beside the mean of its batch, so that a generator which repeats itself is found out."""

    def __init__(self, n_codes: int, settings: MedWganConfig) -> None:
        super().__init__()
        widths = (2 * n_codes, *settings.critic_widths)
        layers = [nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU()) for inputs, outputs in pairwise(widths)]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, x: Tensor) -> Tensor:
        judged: Tensor = self.layers(torch.cat([x, x.mean(0, keepdim=True).expand_as(x)], dim=1))
        return judged


class MedWgan(Wgan):
    """First the autoencoder is trained alone; then the GAN, whose generator's steps also tune the decoder."""

    spec = MED_WGAN
    settings: MedWganConfig
    network: MedNetworks
    training_only = ("critic.", "encoder.")

    def build(self) -> MedNetworks:
        return MedNetworks(self.n_codes, self.settings)

    def optimisers(self) -> Optimisers:
        network = self.network
        return {
            "autoencoder": self.adam(network.encoder, network.decoder),
            "critic": self.adam(network.critic),
            "generator": self.adam(network.generator, network.decoder),
        }

    def train_step(self, x: Tensor, optimisers: Optimisers, step: int, total: int, generator: torch.Generator) -> float:
        """The loss is the autoencoder's while it is trained, then the critic's distance."""
        if step >= math.ceil(self.settings.pretrain_share * total):
            return super().train_step(x, optimisers, step, total, generator)
        losses = []
        for part in torch.split(x, self.settings.pretrain_batch_size):
            losses.append(self.network.reconstruction_loss(part))
            descend(optimisers["autoencoder"], losses[-1])
        return float(torch.stack(losses).detach().mean())


def _layer(width: int, activation: nn.Module) -> nn.Module:
    norm = nn.BatchNorm1d(width, eps=NORM_EPS, momentum=NORM_MOMENTUM)
    return nn.Sequential(nn.Linear(width, width, bias=False), norm, activation)
