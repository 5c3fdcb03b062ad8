"""How a denoiser learns, whatever it is shown: AdamW, its learning rates, and early stopping on what was held out."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ehr.generators.d3pm import TrainingConfig
from worker.engine.checkpoints import Checkpoint, flat, load_optimiser, optimiser_tensors, require_same_network
from worker.engine.denoisers import Denoiser
from worker.engine.losses import ImportanceTimes, PowerTimes, TimeSampler
from worker.engine.noise import Noise
from worker.engine.training.links import LinkDescent
from worker.engine.training.loop import Learner, TrainingRun

SETTLE_RATE = 0.05  # of the learning rate
TIME_SAMPLERS: dict[str, type[TimeSampler]] = {"importance": ImportanceTimes, "power": PowerTimes}


class DenoiserLearner(Learner):
    """A denoiser in training. Where something was held out, the averaged weights that suit it best are kept."""

    holds_out: bool  # whether something was

    def __init__(self, denoiser: Denoiser, noise: Noise, config: TrainingConfig, device: torch.device) -> None:
        self.denoiser, self.config, self.device = denoiser.to(device), config, device
        self.noise = noise.to(device)
        self.weights = dict(denoiser.named_parameters())
        self.best = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.optimiser = torch.optim.AdamW(
            _decay_groups(self.weights, config),
            lr=config.learning_rate,
            betas=(0.9, config.second_moment_decay),
            fused=True,
        )
        self.links: LinkDescent | None = None  # where the pairwise table does not learn as other weights do
        self.times = TIME_SAMPLERS[config.time_sampling](noise.timesteps)
        self.advice = (
            f" with learning rate {config.learning_rate}: "
            "try a lower learning_rate, more warmup_steps or a smaller gradient_clip"
        )

    @abstractmethod
    def held_out(self, weights: Mapping[str, Tensor], seed: int) -> float:
        """The ELBO of what was held out under these weights, always with the same draws, so that epochs compare."""

    def kept(self, weights: Mapping[str, Tensor], seed: int) -> Mapping[str, Tensor]:
        """The weights that a run that is over keeps, made of its best ones."""
        return weights

    def prepare_step(self, run: TrainingRun) -> None:
        """Dropout and learning rate of the step to come."""
        self.denoiser.train(run.step < run.settle_at)  # settling is training without dropout
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.config, run)

    def descend(self, losses: Iterable[Tensor]) -> None:
        """One step down the sum of some losses. Each is let go of before the next is asked for, and its graph with
        it."""
        self.optimiser.zero_grad(set_to_none=True)
        for loss in losses:
            torch.autograd.backward(loss)
        if self.links is not None:
            self.links.step(self.optimiser.param_groups[0]["lr"] / self.config.learning_rate)
        if self.config.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.weights.values(), self.config.gradient_clip)
        self.optimiser.step()

    def end_epoch(self, epoch: int, run: TrainingRun) -> None:
        due = epoch == self.config.epochs or epoch % self.config.evaluate_every == 0
        if not self.holds_out or not due:
            return
        value = self.held_out(run.average, run.seed)
        if value < min((point["held_out"] for point in run.curve), default=math.inf):
            self.best = {name: weight.clone() for name, weight in run.average.items()}
        run.curve.append({"epoch": epoch, "loss": run.loss, "held_out": value})

    def gives_up(self, run: TrainingRun) -> bool:
        if self.config.patience is None or not run.curve:
            return False
        best = min(run.curve, key=lambda point: point["held_out"])
        over = run.curve[-1]["epoch"] - best["epoch"] >= self.config.patience
        if over:
            self.load_weights(self.best)
        return over

    def finish(self, run: TrainingRun) -> None:
        weights = self.best if self.holds_out else run.average
        self.load_weights(self.kept(weights, run.seed))

    @contextmanager
    def loaded(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """Inside, the network has these weights."""
        current = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.load_weights(weights)
        try:
            yield
        finally:
            self.load_weights(current)

    # --- checkpoints ---

    def tensors(self) -> dict[str, Tensor]:
        tensors = flat("weights", self.weights) | flat("best", self.best)
        return tensors | flat("optimiser", optimiser_tensors(self.optimiser)) | flat("times", self.times.state())

    def load(self, checkpoint: Checkpoint) -> None:
        weights, best = checkpoint.under("weights"), checkpoint.under("best")
        require_same_network(weights, self.weights)
        self.load_weights(weights)
        self.best = {name: best[name].to(self.device).clone() for name in self.weights}
        load_optimiser(self.optimiser, checkpoint.under("optimiser"))
        self.times.load(checkpoint.under("times"))


def learning_rate(config: TrainingConfig, run: TrainingRun) -> float:
    """Of the step to come."""
    if run.step >= run.settle_at:
        factor = SETTLE_RATE * (run.total - run.step) / (run.total - run.settle_at)
    elif config.schedule == "exponential":
        factor = config.decay_per_epoch ** (run.step // run.per_epoch)
    else:
        warmup = min(config.warmup_steps, run.total // 10)
        cosine = 0.5 * (1 + math.cos(math.pi * run.step / run.settle_at))
        factor = cosine * min(1.0, (run.step + 1) / max(warmup, 1))
    return config.learning_rate * factor


def _decay_groups(weights: dict[str, nn.Parameter], config: TrainingConfig) -> list[dict[str, Any]]:
    """Weight decay for matrices, its own for the pairwise table, none for biases and norms."""
    groups: dict[float, list[nn.Parameter]] = {}
    for name, weight in weights.items():
        pairwise = name.startswith("pairwise")
        decay = config.pairwise_decay if pairwise else config.weight_decay if weight.ndim > 1 else 0.0
        groups.setdefault(decay, []).append(weight)
    return [{"params": params, "weight_decay": decay} for decay, params in groups.items()]
