"""TabSyn (Zhang et al. 2024): a transformer autoencoder with one token for each code, then EDM on its latents.

It differs from the authors' code where that looks at a validation set, which a training step here does not see: the
weight of the KL and the learning rates fall on a schedule, not when a loss stops falling. Latents are divided by twice
their measured deviation, not by 2, which assumes a deviation of 1.
"""

from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ehr.errors import DataError
from ehr.generators.tabsyn import TABSYN, TabSynConfig
from ehr.records import Records
from worker.engine.generators.baselines.edm import EDM, HeunBaseline
from worker.engine.generators.baselines.networks import Optimisers, ProjectedMLP, gradient_step
from worker.engine.generators.protocol import FitRequest

SIGMA_DATA = 0.5
ENCODED_AT_ONCE = 1024


class Layer(nn.Module):
    """Attention of one head and a feed-forward layer, each behind a norm but the network's first attention."""

    def __init__(self, width: int, factor: int, first: bool) -> None:
        super().__init__()
        self.before_attention = nn.Identity() if first else nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width * factor), nn.ReLU(), nn.Linear(width * factor, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.before_attention(x)
        query, key, value = (part(h).unsqueeze(1) for part in (self.query, self.key, self.value))  # one head
        x = x + F.scaled_dot_product_attention(query, key, value).squeeze(1)
        out: Tensor = x + self.feed_forward(x)
        return out


class TabSynNetwork(nn.Module):
    """The autoencoder, the denoiser of its latents, and where the latents lie."""

    centre: Tensor
    scale: Tensor

    def __init__(self, n_codes: int, settings: TabSynConfig) -> None:
        super().__init__()
        width = settings.token_width

        def uniform(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).uniform_(-(width**-0.5), width**-0.5))

        def transformer() -> nn.Sequential:
            return nn.Sequential(*(Layer(width, settings.factor, first=k == 0) for k in range(settings.layers)))

        self.whole = uniform(1, width)  # a token of the record as a whole; only the encoders see it
        self.states, self.codes = uniform(2, n_codes, width), uniform(n_codes, width)
        self.mean, self.log_variance, self.decoder = transformer(), transformer(), transformer()
        self.readout, self.readout_bias = uniform(2, n_codes, width), uniform(2, n_codes)
        self.denoiser = ProjectedMLP(
            n_codes * width, settings.width, (2 * settings.width, 2 * settings.width, settings.width), nn.SiLU
        )
        self.register_buffer("centre", torch.zeros(n_codes * width))
        self.register_buffer("scale", torch.ones(()))

    def tokens(self, x: Tensor) -> Tensor:
        """The record as a whole, then its codes, (B, 1 + N, width), from x (B, N) of 0 and 1."""
        absent, present = self.states
        codes = absent + x.unsqueeze(-1) * (present - absent) + self.codes
        return torch.cat([self.whole.expand(len(x), 1, -1), codes], 1)

    def latents(self, x: Tensor) -> Tensor:
        """The encoder's means, (B, N * width)."""
        means: Tensor = self.mean(self.tokens(x))[:, 1:]
        return means.flatten(1)

    def decode(self, z: Tensor) -> Tensor:
        """Log-odds of each code, (B, N), from latents (B, N, width)."""
        absent, present = torch.einsum("bnd,snd->sbn", self.decoder(z), self.readout) + self.readout_bias.unsqueeze(1)
        log_odds: Tensor = (present - absent).float()
        return log_odds


class TabSyn(HeunBaseline):
    """99 network calls for each record as published."""

    spec = TABSYN
    network: TabSynNetwork
    training_only = ("whole", "states", "codes", "mean.", "log_variance.")  # the encoders and the tokens they read

    def build(self) -> nn.Module:
        self.edm = EDM(SIGMA_DATA, sigma_min=0.002, churn=1.0)
        return TabSynNetwork(self.n_codes, self.settings)

    @classmethod
    def fit(cls, request: FitRequest) -> Self:
        made = super().fit(request)
        del made.train, made.encoded  # a trained generator holds no patients
        return made

    def prepare(self, train: Records) -> None:
        most = self.spec.most_codes
        if most is not None and train.n_codes > most:
            raise DataError(
                f"'tabsyn' takes at most {most} codes, not {train.n_codes:,}: its autoencoder has a token for "
                "each code and does not learn sparse records with more; keep the most common codes (about 100)"
            )
        self.train = train
        self.encoded: Tensor | None = None

    def optimisers(self) -> Optimisers:
        rate, denoiser = self.settings.learning_rate, list(self.network.denoiser.parameters())
        mine = {id(weight) for weight in denoiser}
        autoencoder = [weight for weight in self.network.parameters() if id(weight) not in mine]
        return {"autoencoder": torch.optim.Adam(autoencoder, rate), "denoiser": torch.optim.Adam(denoiser, rate)}

    # --- training ---

    def train_step(self, x: Tensor, optimisers: Optimisers, step: int, total: int, generator: torch.Generator) -> float:
        border = max(int(self.settings.autoencoder_share * total), 1)
        if step < border:
            done = step / border
            loss = self._autoencoder_loss(x, done, generator)
            return gradient_step(optimisers["autoencoder"], loss, self.settings.learning_rate * (1 - done))
        if self.encoded is None:
            self.encoded = self._encode()
        done = (step - border) / (total - border)
        # from the whole table of latents and not those of x: the encoder costs more than the denoiser
        rows = torch.randint(len(self.encoded), (len(x),), generator=generator, device=self.device)
        loss = self.edm.loss(self.network.denoiser, self.encoded[rows], generator)
        return gradient_step(optimisers["denoiser"], loss, self.settings.learning_rate * (1 - done))

    def _autoencoder_loss(self, x: Tensor, done: float, generator: torch.Generator) -> Tensor:
        """The error of the codes and, ever less of it, the KL of the latents to a standard normal; means of both."""
        tokens = self.network.tokens(x)
        mean, log_variance = self.network.mean(tokens).float(), self.network.log_variance(tokens).float()
        noise = torch.randn(mean.shape, generator=generator, device=x.device)
        z = mean + noise * (log_variance / 2).exp()
        error = F.binary_cross_entropy_with_logits(self.network.decode(z[:, 1:]), x)
        kl = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).mean()
        beta = self.settings.beta_max * (self.settings.beta_min / self.settings.beta_max) ** done
        loss: Tensor = error + beta * kl
        return loss

    @torch.no_grad()
    def _encode(self) -> Tensor:
        """The latents of all training records, centred and scaled; from here on the autoencoder does not change."""
        starts = range(0, len(self.train), ENCODED_AT_ONCE)
        parts = (self.train.take(np.arange(at, min(at + ENCODED_AT_ONCE, len(self.train)))) for at in starts)
        z = torch.cat([self.network.latents(torch.from_numpy(p.to_dense()).to(self.device)).float() for p in parts])
        centre = z.double().mean(0)
        deviation = (z.double() - centre).square().mean().sqrt()
        self.network.centre.copy_(centre)
        self.network.scale.copy_(deviation.clamp(min=1e-6) / SIGMA_DATA)
        return (z - self.network.centre) / self.network.scale

    # --- sampling ---

    def draw(self, rows: int, generator: torch.Generator, steps: int | None) -> Tensor:
        shape = (rows, len(self.network.centre))
        z = self.edm.sample(self.network.denoiser, shape, self.heun_steps(steps), generator)
        z = z * self.network.scale + self.network.centre
        return self.network.decode(z.view(rows, self.n_codes, -1)) > 0
