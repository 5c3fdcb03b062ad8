"""Finding the weights: mini-batches straight from CSR, AdamW, EMA, early stopping, and checkpoints that lose nothing.

Randomness is drawn so that a run can be stopped after any batch and resumed bit for bit: the order of an epoch
depends on (seed, epoch) alone, and the state of the noise generator is part of the checkpoint. With several processes
(torch.distributed) every process draws the whole batch and works on its share of rows, so that any number of
processes follows the same path as one.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ehr.errors import DataError, TrainingError, TrainingStopped
from ehr.generators.d3pm import TrainingConfig
from ehr.records import Records
from worker.engine.checkpoints import Checkpoint, flat, load_optimiser, optimiser_tensors, require_same_network
from worker.engine.contexts import Contexts
from worker.engine.denoisers import Denoiser
from worker.engine.losses import ImportanceTimes, PowerTimes, TimeSampler, elbo_terms, held_out_elbo
from worker.engine.noise import Noise

SETTLE_RATE = 0.05  # of the learning rate
SIZE_SHARE = 0.3  # of a batch's records, from which the number of codes is learned
TIME_SAMPLERS: dict[str, type[TimeSampler]] = {"importance": ImportanceTimes, "power": PowerTimes}


@dataclass(frozen=True)
class Progress:
    """Where training is; given to the caller's `on_progress` after every batch."""

    step: int
    total_steps: int
    epoch: int
    loss: float  # smoothed training loss, nats per record
    held_out: float | None  # newest held-out ELBO, nats per record


@dataclass(frozen=True)
class Hooks:
    """The caller's eyes and hands; training itself knows no files, clocks or screens."""

    on_progress: Callable[[Progress], None] | None = None
    on_checkpoint: Callable[[Checkpoint], None] | None = None
    should_stop: Callable[[], bool] | None = None


class Objective(nn.Module):
    """What a step makes smaller; one module, so that several processes see one forward call."""

    def __init__(self, denoiser: Denoiser, noise: Noise, auxiliary_weight: float) -> None:
        super().__init__()
        self.denoiser, self.noise, self.auxiliary_weight = denoiser, noise, auxiliary_weight

    def forward(
        self, x_start: Tensor, x_t: Tensor, t: Tensor, contexts: Contexts | None, shown: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """(L_t, the objective at t, (B,) each; the mean loss of the contexts), nats.

        What a record's other codes are is asked for the first `shown` contexts, how many they are for all of them.
        """
        size = x_start.sum(1)
        if contexts is None:
            return *elbo_terms(self.denoiser(x_t, t, size), self.noise, x_start, x_t, t, self.auxiliary_weight), None
        some, rows = contexts.share(slice(shown)), len(x_start)
        logits = self.denoiser(  # in one call: another would cost as much as many more records
            torch.cat([x_t, some.x_known]),
            torch.cat([t, some.times(self.noise.timesteps)]),
            torch.cat([size, some.size]),
        )
        l_t, objective = elbo_terms(logits[:rows], self.noise, x_start, x_t, t, self.auxiliary_weight)
        beside = some.loss(logits[rows:]).sum() / rows
        size_log_p = self.denoiser.size_log_probability(contexts.x_known)
        return l_t, objective, beside if size_log_p is None else beside + contexts.size_loss(size_log_p).mean()


@dataclass
class Trainer:
    """One training run. `fit` returns when it is done; afterwards `denoiser` holds the best averaged weights."""

    denoiser: Denoiser
    noise: Noise
    config: TrainingConfig
    seed: int
    device: torch.device
    hooks: Hooks = field(default_factory=Hooks)

    def __post_init__(self) -> None:
        self.denoiser.to(self.device)
        self.noise = self.noise.to(self.device)
        self.weights = dict(self.denoiser.named_parameters())
        self.average = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.best = {name: weight.clone() for name, weight in self.average.items()}
        self.optimiser = torch.optim.AdamW(
            _decay_groups(self.weights, self.config),
            lr=self.config.learning_rate,
            betas=(0.9, self.config.second_moment_decay),
            fused=True,
        )
        self.times = TIME_SAMPLERS[self.config.time_sampling](self.noise.timesteps)
        self.generator = torch.Generator(self.device).manual_seed(self.seed)
        self.step = 0
        self.loss = math.nan
        self.curve: list[dict[str, float]] = []
        self.objective: nn.Module = Objective(self.denoiser, self.noise, self.config.auxiliary_weight)
        self.rank, self.world = 0, 1
        if dist.is_available() and dist.is_initialized():
            self.rank, self.world = dist.get_rank(), dist.get_world_size()
            self.objective = DistributedDataParallel(self.objective)

    # --- the loop ---

    def fit(self, train: Records, holdout: Records | None) -> list[dict[str, float]]:
        """Train to the end and return the curve: for each evaluated epoch its training loss and held-out ELBO."""
        batch_size, per_epoch = self._batches_per_epoch(train)
        total = per_epoch * self.config.epochs
        settle_at = total - per_epoch * round(self.config.settle_share * self.config.epochs)
        while self.step < total:
            for rows in self._remaining_batches(len(train), batch_size, per_epoch):
                self._set_learning_rate(per_epoch, settle_at, total)
                self._train_batch(train.take(rows), settled_for=self.step - settle_at)
                epoch = (self.step - 1) // per_epoch
                self._report(total, epoch)
                if self.step % per_epoch == 0:
                    self._end_epoch(epoch, holdout)
                self._checkpoint_if_due(per_epoch)
            if self.step < settle_at and self._patience_is_over():
                self._load_weights(self.best)
                self.step = settle_at  # more epochs would be of no use, but settling is
        self._load_weights(self.best if holdout is not None else self.average)
        return self.curve

    def _batches_per_epoch(self, train: Records) -> tuple[int, int]:
        if len(train) == 0 or len(train.indices) == 0:
            raise DataError("there is nothing to learn from: the training records are empty")
        automatic = max(min(512, len(train) // 50), 64) // self.world * self.world
        batch_size = min(automatic if self.config.batch_size is None else self.config.batch_size, len(train))
        if batch_size % self.world:
            raise DataError(f"a batch of {batch_size} records cannot be shared evenly by {self.world} processes")
        return batch_size, len(train) // batch_size  # the few records left over change with every epoch's order

    def _remaining_batches(self, n: int, batch_size: int, per_epoch: int) -> Iterator[np.ndarray]:
        epoch, done = divmod(self.step, per_epoch)
        order = np.random.default_rng([self.seed, epoch]).permutation(n)
        for batch in range(done, per_epoch):
            yield order[batch * batch_size : (batch + 1) * batch_size]

    def _train_batch(self, batch: Records, settled_for: int = -1) -> None:
        """One step; `settled_for` steps have been made since training began to settle, or it is negative."""
        self.denoiser.train(settled_for < 0)  # settling is training without dropout
        x_start = torch.from_numpy(batch.to_dense(np.uint8)).to(self.device)
        t, probability = self.times.draw(len(batch), self.generator)
        x_t = self.noise.q_sample(x_start, t, self.generator)
        contexts = self._draw_contexts(x_start)
        mine = slice(self.rank, None, self.world)
        with (
            precision(self.device),
            seeded(self.seed, self.step, self.rank),
        ):  # dropout draws from torch's global generator
            l_t, objective, context_loss = self.objective(
                x_start[mine],
                x_t[mine],
                t[mine],
                None if contexts is None else contexts.share(mine),
                round(self.config.context_share * len(batch) / self.world),
            )
        loss = (objective / probability[mine]).mean()
        if context_loss is not None:
            loss = loss + context_loss
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        if self.config.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.weights.values(), self.config.gradient_clip)
        self.optimiser.step()
        self.step += 1
        self._update_average(self.step if settled_for < 0 else settled_for)
        self.times.update(*self._gather(t[mine], l_t))
        self._smooth_loss(float((l_t / probability[mine]).mean().detach()))

    def _draw_contexts(self, x_start: Tensor) -> Contexts | None:
        """Some records of the batch once more, as a condition shows them; the same number for every process."""
        if not self.noise.reveals:
            return None
        rows = round(max(self.config.context_share, SIZE_SHARE) * len(x_start) / self.world) * self.world
        return Contexts.draw(x_start[:rows], self.generator)

    def _gather(self, t: Tensor, l_t: Tensor) -> tuple[Tensor, Tensor]:
        """The times and losses of all processes, so that their time samplers stay the same."""
        if self.world == 1:
            return t, l_t
        parts = [torch.empty_like(l_t.detach()) for _ in range(self.world)]
        times = [torch.empty_like(t) for _ in range(self.world)]
        dist.all_gather(parts, l_t.detach().contiguous())
        dist.all_gather(times, t.contiguous())
        return torch.cat(times), torch.cat(parts)

    def _smooth_loss(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} at step {self.step} with learning rate {self.config.learning_rate}: "
                "try a lower learning_rate, more warmup_steps or a smaller gradient_clip"
            )
        self.loss = loss if math.isnan(self.loss) else 0.98 * self.loss + 0.02 * loss

    def _set_learning_rate(self, per_epoch: int, settle_at: int, total: int) -> None:
        config = self.config
        if self.step >= settle_at:
            factor = SETTLE_RATE * (total - self.step) / (total - settle_at)
        elif config.schedule == "exponential":
            factor = config.decay_per_epoch ** (self.step // per_epoch)
        else:
            warmup = min(config.warmup_steps, total // 10)
            cosine = 0.5 * (1 + math.cos(math.pi * self.step / settle_at))
            factor = cosine * min(1.0, (self.step + 1) / max(warmup, 1))
        for group in self.optimiser.param_groups:
            group["lr"] = config.learning_rate * factor

    def _update_average(self, steps: int) -> None:
        # Early on the average follows quickly, or it would be made of the first random weights; settling begins anew.
        decay = min(self.config.ema_decay, steps / (steps + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.values()), list(self.weights.values()), 1 - decay)

    # --- the end of an epoch ---

    def _end_epoch(self, epoch: int, holdout: Records | None) -> None:
        last = epoch + 1 == self.config.epochs
        if holdout is None or not (last or (epoch + 1) % self.config.evaluate_every == 0):
            return
        value = self._evaluate(holdout)
        if value < min((point["held_out"] for point in self.curve), default=math.inf):
            self.best = {name: weight.clone() for name, weight in self.average.items()}
        self.curve.append({"epoch": epoch + 1, "loss": self.loss, "held_out": value})

    def _evaluate(self, holdout: Records) -> float:
        """Held-out ELBO of the averaged weights, always with the same draws, so that epochs compare."""
        current = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self._load_weights(self.average)
        sample = holdout.take(np.arange(min(len(holdout), self.config.holdout_records)))
        generator = torch.Generator(self.device).manual_seed(self.seed)
        with precision(self.device):
            elbo = held_out_elbo(self.denoiser, self.noise, sample, generator, self.config.holdout_draws)
        self._load_weights(current)
        if self.world > 1:  # every process must come to the same decision
            shared = torch.tensor([elbo.value], dtype=torch.float64, device=self.device)
            dist.broadcast(shared, 0)
            return float(shared)
        return elbo.value

    def _patience_is_over(self) -> bool:
        if self.config.patience is None or not self.curve:
            return False
        best = min(self.curve, key=lambda point: point["held_out"])
        return self.curve[-1]["epoch"] - best["epoch"] >= self.config.patience

    def _load_weights(self, source: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(source[name])

    # --- telling and saving ---

    def _report(self, total: int, epoch: int) -> None:
        if self.hooks.on_progress is not None:
            held_out = self.curve[-1]["held_out"] if self.curve else None
            self.hooks.on_progress(Progress(self.step, total, epoch + 1, self.loss, held_out))

    def _checkpoint_if_due(self, per_epoch: int) -> None:
        stop = self.hooks.should_stop is not None and self.hooks.should_stop()
        every = self.config.checkpoint_every
        due = self.step % per_epoch == 0 or (every is not None and self.step % every == 0)
        if self.hooks.on_checkpoint is not None and (due or stop):
            self.hooks.on_checkpoint(self.checkpoint())
        if stop:
            raise TrainingStopped(f"stopped at the caller's request after step {self.step}")

    def checkpoint(self) -> Checkpoint:
        """A copy of everything that changes during training."""
        tensors = {"generator": self.generator.get_state()}
        for prefix, group in (("weights", self.weights), ("average", self.average), ("best", self.best)):
            tensors |= flat(prefix, group)
        tensors |= flat("optimiser", optimiser_tensors(self.optimiser)) | flat("times", self.times.state())
        return Checkpoint(tensors, {"step": self.step, "loss": self.loss, "seed": self.seed, "curve": list(self.curve)})

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go back to where `checkpoint` was made; the trainer must have been built with the same configuration."""
        checkpoint.require_seed(self.seed)
        weights, average, best = (checkpoint.part(name) for name in ("weights", "average", "best"))
        require_same_network(weights, self.weights)
        self._load_weights(weights)
        # In the order of the weights, not of the file: safetensors sorts by name, and averages are updated pairwise.
        self.average = {name: average[name].to(self.device).clone() for name in self.weights}
        self.best = {name: best[name].to(self.device).clone() for name in self.weights}
        load_optimiser(self.optimiser, checkpoint.part("optimiser"))
        self.times.load(checkpoint.part("times"))
        self.generator.set_state(checkpoint.tensors["generator"])
        self.step, self.loss = checkpoint.values["step"], checkpoint.values["loss"]
        self.curve = list(checkpoint.values["curve"])


@contextmanager
def seeded(*seeds: int) -> Iterator[None]:
    """Inside, torch's global generators follow from `seeds` alone; afterwards they are as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> 1))
        yield


def _decay_groups(weights: dict[str, nn.Parameter], config: TrainingConfig) -> list[dict[str, Any]]:
    """Weight decay for matrices, its own for the pairwise table, none for biases and norms."""
    groups: dict[float, list[nn.Parameter]] = {}
    for name, weight in weights.items():
        pairwise = name.startswith("pairwise")
        decay = config.pairwise_decay if pairwise else config.weight_decay if weight.ndim > 1 else 0.0
        groups.setdefault(decay, []).append(weight)
    return [{"params": params, "weight_decay": decay} for decay, params in groups.items()]


def precision(device: torch.device) -> AbstractContextManager[None]:
    """Products in bfloat16 on CUDA; everything in float32 elsewhere."""
    if device.type == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA when there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
