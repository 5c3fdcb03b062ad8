"""The training loop of every generator: order of records, averaged weights, progress, checkpoints, stop and resume.

A run can be stopped after any batch and resumed bit for bit: the order of an epoch depends on (seed, epoch) alone, and
the state of the noise generator is part of the checkpoint. What is learned, and how a batch changes it, is the
`Learner`'s.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ehr.errors import DataError, StateError, TrainingError, TrainingStopped
from ehr.records import Records
from ehr.streams import RecordStream
from worker.engine.checkpoints import Checkpoint, flat, require_same_network


@dataclass(frozen=True)
class TrainingProgress:
    """Where training is; given to the caller's `on_progress` after every batch."""

    step: int
    total_steps: int
    epoch: int
    loss: float  # smoothed training loss; of d3pm in nats per record
    held_out: float | None  # newest held-out ELBO, nats per record
    settles_by: int  # the step with which learning from records ends; those after it are another network's


@dataclass(frozen=True)
class Hooks:
    """The caller's eyes and hands; training itself knows no files, clocks or screens."""

    on_progress: Callable[[TrainingProgress], None] | None = None
    on_checkpoint: Callable[[Checkpoint], None] | None = None
    should_stop: Callable[[], bool] | None = None
    should_settle: Callable[[], bool] | None = None  # asked before every epoch: time is up, settle and end
    on_calibration: Callable[[int, int], None] | None = None  # told of records or patients drawn after the last step

    def calibration(self, before: int, of: int) -> Callable[[int, int], None]:
        """What a round of drawing tells on its way: `before` were drawn in earlier rounds, and there will be `of` in
        all. TrainingStopped if the caller wants an end."""

        def on_drawn(drawn: int, _: int) -> None:
            if self.should_stop is not None and self.should_stop():
                raise TrainingStopped("stopped at the caller's request while the model was being calibrated")
            if self.on_calibration is not None:
                self.on_calibration(before + drawn, of)

        return on_drawn


NO_HOOKS = Hooks()


@dataclass(frozen=True)
class Plan:
    """How long a run is, and what is kept of it on the way."""

    epochs: int
    batch_size: int
    ema_decay: float | None  # None: weights are not averaged
    checkpoint_every: int | None  # steps between checkpoints besides every epoch's end
    settle_epochs: int = 0  # at the end, which are reached even if the learner gives up before
    before: int = 0  # steps of the run that this one follows,
    after: int = 0  # and of the one that follows it


class Rows(Protocol):
    """What a run learns from, some rows at a time: records, or the histories of patients."""

    def __len__(self) -> int: ...

    def take(self, rows: ArrayLike, /) -> Any: ...


class Learner(ABC):
    """What a run trains: a network, its optimisers, and what one step does to them."""

    device: torch.device
    weights: dict[str, nn.Parameter]  # those that are averaged
    advice: str  # what to try when the loss is not a number any more

    @abstractmethod
    def step(self, batch: Any, run: "TrainingRun") -> float:
        """Learn from a batch of the run's rows; its loss. `run.step` steps have been made before."""

    @abstractmethod
    def end_epoch(self, epoch: int, run: "TrainingRun") -> None:
        """An epoch (from 1) is over: add a point to `run.curve` where there is something to tell."""

    def gives_up(self, run: "TrainingRun") -> bool:
        """Whether more epochs would be of no use; if so, go back to the weights from which the run shall settle."""
        return False

    def finish(self, run: "TrainingRun") -> None:
        """Training is over: take the weights that shall be kept."""
        self.load_weights(run.average)

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Copies of all that a checkpoint needs beside what the run itself keeps."""

    @abstractmethod
    def load(self, checkpoint: Checkpoint) -> None:
        """Take back what `tensors` gave; StateError if it belongs to another network."""

    def load_weights(self, source: Mapping[str, Tensor]) -> None:
        """Make the weights those of `source`; what it does not have stays."""
        with torch.no_grad():
            for name in self.weights.keys() & source.keys():
                self.weights[name].copy_(source[name])


class TrainingRun:
    """One training of a learner. `to_the_end` returns when it is done; afterwards the learner has its final weights."""

    def __init__(
        self,
        learner: Learner,
        train: Rows | RecordStream,
        plan: Plan,
        seed: int,
        hooks: Hooks,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.learner, self.train, self.plan, self.seed, self.hooks = learner, train, plan, seed, hooks
        self.per_epoch = len(train) // plan.batch_size  # the few records left over change with every epoch's order
        self.total = self.per_epoch * plan.epochs
        self.settle_at = self.total - self.per_epoch * plan.settle_epochs
        self.step, self.loss = 0, math.nan
        self.curve: list[dict[str, float]] = []
        self.generator = torch.Generator(learner.device).manual_seed(seed)
        averaged = {} if plan.ema_decay is None else learner.weights
        self.average: dict[str, Tensor] = {name: weight.detach().clone() for name, weight in averaged.items()}
        if checkpoint is not None:
            self._resume(checkpoint)

    def to_the_end(self) -> list[dict[str, float]]:
        """Train; the curve, with a point for each epoch about which the learner had something to tell."""
        while self.step < self.total:
            if self.step < self.settle_at and (self.learner.gives_up(self) or self._time_is_up()):
                self.step = self.settle_at
                continue
            for batch in self._remaining_batches():
                self._learn_from(batch)
                self._report()
                if self.step % self.per_epoch == 0:
                    self.learner.end_epoch(self.step // self.per_epoch, self)
                self._checkpoint_if_due()
        self.learner.finish(self)
        return self.curve

    def _time_is_up(self) -> bool:
        return self.hooks.should_settle is not None and self.hooks.should_settle()

    def _remaining_batches(self) -> Iterator[Any]:
        epoch, done = divmod(self.step, self.per_epoch)
        if isinstance(self.train, RecordStream):
            yield from self.train.batches(self.seed, epoch, self.plan.batch_size, done, self.per_epoch)
            return
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.train))
        for start in range(done * self.plan.batch_size, self.per_epoch * self.plan.batch_size, self.plan.batch_size):
            yield self.train.take(order[start : start + self.plan.batch_size])

    def _learn_from(self, batch: Any) -> None:
        loss = self.learner.step(batch, self)
        settled_for = self.step - self.settle_at
        self.step += 1
        if not math.isfinite(loss):
            raise TrainingError(f"the loss is {loss} at step {self.step}{self.learner.advice}")
        self.loss = loss if math.isnan(self.loss) else 0.98 * self.loss + 0.02 * loss
        self._update_average(self.step if settled_for < 0 else settled_for)

    def _update_average(self, steps: int) -> None:
        if self.plan.ema_decay is None:
            return
        # Early on the average follows quickly, or it would be made of the first random weights; settling begins anew.
        decay = min(self.plan.ema_decay, steps / (steps + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.values()), list(self.learner.weights.values()), 1 - decay)

    def _report(self) -> None:
        if self.hooks.on_progress is not None:
            step, end = self.plan.before + self.step, self.plan.before + self.total
            epoch = (step - 1) // self.per_epoch + 1
            held_out = self.curve[-1].get("held_out") if self.curve else None
            self.hooks.on_progress(
                TrainingProgress(step, end + self.plan.after, epoch, self.loss, held_out, self.plan.before or end)
            )

    # --- checkpoints ---

    def _checkpoint_if_due(self) -> None:
        stop = self.hooks.should_stop is not None and self.hooks.should_stop()
        every = self.plan.checkpoint_every
        due = self.step % self.per_epoch == 0 or (every is not None and self.step % every == 0)
        if self.hooks.on_checkpoint is not None and (due or stop):
            self.hooks.on_checkpoint(self._checkpoint())
        if stop:
            raise TrainingStopped(f"stopped at the caller's request after step {self.step}")

    def _checkpoint(self) -> Checkpoint:
        """A copy of everything that changes during training."""
        tensors = {"generator": self.generator.get_state()} | flat("average", self.average) | self.learner.tensors()
        values = {"step": self.plan.before + self.step, "loss": self.loss, "seed": self.seed, "curve": list(self.curve)}
        return Checkpoint(tensors, values)

    def _resume(self, checkpoint: Checkpoint) -> None:
        """Go back to where `checkpoint` was made, by a run with the same plan."""
        if checkpoint.values["seed"] != self.seed:
            raise StateError(f"the checkpoint was made with seed {checkpoint.values['seed']}, not {self.seed}")
        self.learner.load(checkpoint)
        average = checkpoint.under("average")
        require_same_network(average, self.average)
        # In the order of the weights, not of the file: safetensors sorts by name, and averages are updated pairwise.
        self.average = {name: average[name].to(self.learner.device).clone() for name in self.average}
        self.generator.set_state(checkpoint.tensors["generator"])
        self.step, self.loss = checkpoint.values["step"] - self.plan.before, checkpoint.values["loss"]
        self.curve = list(checkpoint.values["curve"])


def require_codes(train: Records | RecordStream) -> None:
    """DataError if the records hold nothing to learn from."""
    if len(train) == 0 or not train.sizes().any():
        raise DataError("there is nothing to learn from: the training records are empty")
