"""EHR-D3PM: discrete diffusion over medical codes, behind the generator protocol."""

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from worker.engine.config import D3PMConfig
from worker.engine.denoisers import Denoiser, build_denoiser
from worker.engine.errors import DataError, StateError
from worker.engine.generators.protocol import (
    FitRequest,
    Generator,
    SampleProgress,
    SampleRequest,
    State,
    sample_in_chunks,
)
from worker.engine.guidance import ConditionEnergy, LangevinGuidance
from worker.engine.losses import Elbo, held_out_elbo
from worker.engine.noise import Noise, noise_named
from worker.engine.records import Records
from worker.engine.sampling import Guide, ancestral_sample
from worker.engine.training import Trainer, resolve_device, seeded

DEFAULT_STEPS = 64


class D3PMGenerator(Generator):
    """A noise, a denoiser and the statistics both were built from."""

    name = "d3pm"

    def __init__(self, config: D3PMConfig, prevalence: Tensor, sizes: Tensor, seed: int = 0) -> None:
        """`prevalence` (N,) of the codes, `sizes` the share of training records with 0, 1, 2, ... codes."""
        self.config, self.prevalence, self.sizes = config, prevalence, sizes
        self.noise: Noise = noise_named(config.noise).create(prevalence, config.timesteps)
        with seeded(seed):  # initial weights come from torch's global generator
            self.denoiser: Denoiser = build_denoiser(config.denoiser, self.noise, prevalence, sizes)
        self.curve: list[dict[str, float]] = []
        self.device = torch.device("cpu")

    # --- training ---

    @classmethod
    def prepare(cls, request: FitRequest) -> tuple[Self, Trainer]:
        """The untrained generator and the trainer that would train it."""
        config = D3PMConfig(**request.settings)
        if len(request.train) == 0:
            raise DataError("there is nothing to learn from: the training records are empty")
        if request.holdout is not None and request.holdout.n_codes != request.train.n_codes:
            raise DataError(
                f"training records have {request.train.n_codes} codes, held-out records {request.holdout.n_codes}"
            )
        sizes = np.bincount(request.train.sizes())
        sizes = np.append(sizes, 0) / sizes.sum()  # the last entry stands for anything larger
        generator = cls(
            config, torch.from_numpy(request.train.prevalence()), torch.from_numpy(sizes), seed=request.seed
        )
        generator.to(resolve_device(request.device))
        trainer = Trainer(
            generator.denoiser, generator.noise, config.training, request.seed, generator.device, request.hooks
        )
        if request.checkpoint is not None:
            trainer.resume(request.checkpoint)
        return generator, trainer

    @classmethod
    def fit(cls, request: FitRequest) -> Self:
        generator, trainer = cls.prepare(request)
        generator.curve = trainer.fit(request.train, request.holdout)
        generator.denoiser.eval()
        return generator

    def to(self, device: torch.device) -> None:
        """Move network and noise tables to a device."""
        self.device = device
        self.noise = self.noise.to(device)
        self.denoiser.to(device)
        self.denoiser.noise = self.noise

    def held_out_elbo(self, records: Records, seed: int = 0, draws: int = 4) -> Elbo:
        """Negative ELBO of unseen records, nats per record."""
        generator = torch.Generator(self.device).manual_seed(seed)
        return held_out_elbo(self.denoiser, self.noise, records, generator, draws)

    # --- sampling ---

    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        steps = min(DEFAULT_STEPS, self.config.timesteps) if request.steps is None else request.steps
        self.denoiser.eval()
        guide: Guide | None = None
        if request.condition is not None and not request.condition.is_empty:
            guide = LangevinGuidance(ConditionEnergy(request.condition), strength=request.strength)

        def draw(rows: int, seed: int) -> Records:
            generator = torch.Generator(self.device).manual_seed(seed)
            size = self._draw_sizes(rows, generator)
            x_0 = ancestral_sample(
                lambda x_t, t: self.denoiser.in_batches(x_t, t, size), self.noise, rows, steps, generator, guide
            )
            return Records.from_dense(x_0.cpu().numpy())

        return sample_in_chunks(request, self.noise.n_codes, draw, progress)

    def _draw_sizes(self, rows: int, generator: torch.Generator) -> Tensor | None:
        if self.denoiser.size_log_prior is None:
            return None
        return torch.multinomial(self.denoiser.size_log_prior.exp(), rows, replacement=True, generator=generator)

    # --- at rest ---

    def state(self) -> State:
        tensors = {f"denoiser/{name}": value.cpu() for name, value in self.denoiser.state_dict().items()}
        tensors |= {"prevalence": self.prevalence, "sizes": self.sizes}
        config: dict[str, Any] = {
            "generator": self.name,
            "version": 1,
            "settings": self.config.model_dump(),
            "curve": self.curve,
        }
        return State(tensors, config)

    @classmethod
    def from_state(cls, state: State) -> Self:
        if state.config.get("generator") != cls.name or state.config.get("version") != 1:
            raise StateError(f"this is not the state of a '{cls.name}' generator, version 1")
        generator = cls(D3PMConfig(**state.config["settings"]), state.tensors["prevalence"], state.tensors["sizes"])
        weights = {
            name.removeprefix("denoiser/"): value
            for name, value in state.tensors.items()
            if name.startswith("denoiser/")
        }
        try:
            generator.denoiser.load_state_dict(weights)
        except RuntimeError as error:
            raise StateError(f"the tensors do not fit the configuration: {error}") from None
        generator.curve = list(state.config["curve"])
        generator.denoiser.eval()
        return generator
