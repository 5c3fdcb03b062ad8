"""EMR-WGAN (Zhang et al., JAMIA 2020): a Wasserstein GAN on the codes themselves, without an autoencoder."""

import torch
from torch import nn

from ehr.generators.emr_wgan import EMR_WGAN, EmrWganConfig
from worker.engine.generators.baselines.wgan import NORM_MOMENTUM, Adversaries, Residual, Wgan


class EmrWgan(Wgan):
    """Noise through residual layers with batch norm; a critic of residual layers with layer norm."""

    spec = EMR_WGAN
    settings: EmrWganConfig

    def build(self) -> Adversaries:
        width, more = self.settings.width, self.settings.layers - 1
        generator = nn.Sequential(
            _generator_layer(self.settings.noise_width, width),
            *(Residual(_generator_layer(width, width)) for _ in range(more)),
            nn.Linear(width, self.n_codes),
        )
        critic = nn.Sequential(
            _critic_layer(self.n_codes, width),
            *(Residual(_critic_layer(width, width)) for _ in range(more)),
            nn.Linear(width, 1),
        )
        return Adversaries(generator, critic).start_as_tensorflow()

    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        return {"critic": self.adam(self.network.critic), "generator": self.adam(self.network.generator)}


def _generator_layer(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs, momentum=NORM_MOMENTUM), nn.ReLU())


def _critic_layer(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.LayerNorm(outputs))
