"""TabDDPM (Kotelnikov et al. 2023): multinomial diffusion over all codes at once, with a plain MLP as the denoiser.

The noise is `worker.engine.noise`'s; two things follow it rather than the authors' code. The reverse step is the
mixture over x_0, where theirs puts the mean of x_0 into the posterior, and the network reads one-hot codes, not their
logarithm.
"""

import torch
from torch import Tensor, nn

from ehr.generators.tabddpm import TABDDPM, TabDDPMConfig
from worker.engine import schedules
from worker.engine.generators.baselines.base import Baseline
from worker.engine.generators.baselines.networks import Optimisers, ProjectedMLP, gradient_step
from worker.engine.generators.protocol import SampleRequest
from worker.engine.losses import elbo_terms
from worker.engine.noise import Noise, UniformNoise
from worker.engine.sampling import ancestral_sample


class TwoClassMLP(ProjectedMLP):
    """Reads and writes two values for each code, absent and present, as for any categorical variable."""

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Log-odds of x_0 = 1, (B, N), from x_t (B, N) of 0 and 1 and t (B,)."""
        present = x.float()
        absent_logits, present_logits = super().forward(torch.cat([1 - present, present], 1), t).float().chunk(2, 1)
        return present_logits - absent_logits


class TabDDPM(Baseline):
    """T network calls for each record; fewer stride through the same times."""

    spec = TABDDPM
    settings: TabDDPMConfig

    def build(self) -> nn.Module:
        # The authors' schedule is the squared cosine itself; ours is its root.
        abar = schedules.cosine(self.settings.timesteps) ** 2
        self.noise: Noise = UniformNoise(torch.full((self.n_codes,), 0.5, dtype=torch.float64), abar)
        return TwoClassMLP(2 * self.n_codes, self.settings.width, self.settings.layers, nn.ReLU)

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.noise = self.noise.to(device)

    def optimisers(self) -> Optimisers:
        parameters, decay = self.network.parameters(), self.settings.weight_decay
        return {"denoiser": torch.optim.AdamW(parameters, self.settings.learning_rate, weight_decay=decay)}

    def train_step(self, x: Tensor, optimisers: Optimisers, step: int, total: int, generator: torch.Generator) -> float:
        timesteps = self.settings.timesteps
        t = torch.randint(1, timesteps + 1, (len(x),), generator=generator, device=x.device)
        x_t = self.noise.q_sample(x, t, generator)
        l_t, _ = elbo_terms(self.network(x_t, t), self.noise, x, x_t, t)
        rate = self.settings.learning_rate * (1 - step / total)
        return gradient_step(optimisers["denoiser"], timesteps * l_t.mean(), rate)

    def steps_of(self, request: SampleRequest) -> int:
        return self.settings.timesteps if request.steps is None else request.steps

    def draw(self, rows: int, generator: torch.Generator, steps: int | None) -> Tensor:
        steps = self.settings.timesteps if steps is None else steps
        return ancestral_sample(self.network, self.noise, rows, steps, generator)
