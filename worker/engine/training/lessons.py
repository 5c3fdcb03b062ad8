"""A narrower network learns to say what a trained one says, so that drawing costs a fraction.

A record is one draw of what a patient might have; a trained network tells all of that at once. So the narrower one
needs few steps, and what it learns of patients it learns through a network that has been restrained already
(docs/decisions/0138).
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ehr.records import Records
from worker.engine.checkpoints import Checkpoint, flat, load_optimiser, optimiser_tensors, require_same_network
from worker.engine.contexts import Contexts
from worker.engine.denoisers import SparseDenoiser
from worker.engine.denoisers.projection import project
from worker.engine.groups import GroupTable
from worker.engine.losses import PowerTimes
from worker.engine.noise import HIDDEN, Noise
from worker.engine.training.devices import training_precision
from worker.engine.training.loop import Learner, Plan, TrainingRun

SHARE, MOST = 0.2, 4000  # lessons for each step of the training before, and in all
LEARNING_RATE, WARM_UP, WEIGHT_DECAY = 2e-3, 200, 0.01
EMA_DECAY, GRADIENT_CLIP = 0.999, 10.0
CONTEXT_SHARE = 0.1  # of a batch's records that are also shown as a condition shows them
TEACHER, PUPIL = "teacher", "pupil"  # how the names of their tensors in a checkpoint begin
LOOKED_AT = 2048  # records, to see what flows through the teacher


def plan_of_lessons(training: Plan, per_epoch: int) -> Plan:
    """The run that follows a training: about as many epochs as its share of steps."""
    epochs = max(math.floor(min(SHARE * training.epochs, MOST / max(per_epoch, 1))), 1)
    every = training.checkpoint_every
    return Plan(epochs, training.batch_size, EMA_DECAY, every, before=training.epochs * per_epoch)


class Lessons(Learner):
    """A network (the pupil) that learns from another (the teacher), whatever both are shown."""

    def __init__(
        self, pupil: SparseDenoiser, teacher: SparseDenoiser, noise: Noise, some: Records, device: torch.device
    ) -> None:
        """`some` of the records show what flows through the teacher."""
        self.pupil, self.teacher, self.noise, self.device = pupil.to(device), teacher.eval(), noise, device
        x_start, generator = self._states(some), torch.Generator(device).manual_seed(0)
        t = torch.randint(1, noise.timesteps + 1, (len(some),), generator=generator, device=device)
        project(teacher, pupil, noise.q_sample(x_start, t, generator), t, x_start.sum(1))
        # How many codes a record has, the pupil knows already.
        self.weights = {name: weight for name, weight in pupil.named_parameters() if not name.startswith("sizes.")}
        self.times = PowerTimes(noise.timesteps)
        matrices = [weight for weight in self.weights.values() if weight.ndim > 1]
        others = [weight for weight in self.weights.values() if weight.ndim <= 1]
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}],
            lr=LEARNING_RATE,
            fused=True,
        )
        self.advice = " while a narrower network learned from it: try drawing_width null"

    def step(self, batch: Records, run: TrainingRun) -> float:
        self.pupil.eval()  # nothing is left out: there is nothing to be learned by heart
        for group in self.optimiser.param_groups:
            group["lr"] = LEARNING_RATE * _rate(run.step, run.total)
        x, t, size, weight = self._shown(batch, run.generator)
        with training_precision(self.device):
            with torch.no_grad():
                told = self.teacher(x, t, size)
            said = self.pupil(x, t, size)
        loss = (divergence(told, said, x == HIDDEN, self.noise.groups) * weight).sum() / len(batch)
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.weights.values(), GRADIENT_CLIP)
        self.optimiser.step()
        return float(loss.detach())

    def _shown(self, batch: Records, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is shown of the records: as noise shows them, and of some as a condition does; times, sizes, and how
        much each counts, as in the training before."""
        x_start = self._states(batch)
        t, probability = self.times.draw(len(batch), generator)
        x_t = self.noise.q_sample(x_start, t, generator)
        contexts = Contexts.draw(x_start[: round(CONTEXT_SHARE * len(batch))], generator, self.noise.groups)
        return (
            torch.cat([x_t, contexts.x_known]),
            torch.cat([t, contexts.times(self.noise.timesteps)]),
            torch.cat([x_start.sum(1), contexts.size]),
            torch.cat([1 / (t * probability), torch.ones_like(contexts.weight)]).float(),
        )

    def _states(self, records: Records) -> Tensor:
        return torch.from_numpy(records.to_dense(np.uint8)).to(self.device)

    def end_epoch(self, epoch: int, run: TrainingRun) -> None:
        """The curve is that of the training before."""

    # --- checkpoints ---

    def tensors(self) -> dict[str, Tensor]:
        networks = flat(TEACHER, self.teacher.state_dict()) | flat(PUPIL, self.weights)
        return networks | flat("optimiser", optimiser_tensors(self.optimiser))

    def load(self, checkpoint: Checkpoint) -> None:
        """The teacher is there already."""
        weights = checkpoint.under(PUPIL)
        require_same_network(weights, self.weights)
        self.load_weights(weights)
        load_optimiser(self.optimiser, checkpoint.under("optimiser"))


def divergence(told: Tensor, said: Tensor, hidden: Tensor, groups: GroupTable) -> Tensor:
    """By how many nats what was said of the hidden codes is off from what was told, (B,), from logits (B, N)."""
    p = torch.sigmoid(told)
    apart = (F.softplus(said) - p * said - F.softplus(told) + p * told) * hidden
    if len(groups) == 0:
        return apart.sum(1)
    is_open = hidden[:, groups.codes]
    of_told, of_said = (
        torch.where(is_open, groups.probability(logits[:, groups.codes], is_open), 0.0) for logits in (told, said)
    )
    members = of_told * _log_ratio(of_told, of_said)
    none = [(1 - groups.total(each)).clamp(min=0.0) for each in (of_told, of_said)]
    nobody = none[0] * _log_ratio(*none) * groups.optional
    return apart.index_fill(1, groups.codes, 0.0).sum(1) + members.sum(1) + nobody.sum(1)


def _log_ratio(p: Tensor, q: Tensor) -> Tensor:
    return torch.log(p.clamp(min=1e-9)) - torch.log(q.clamp(min=1e-9))


def _rate(step: int, total: int) -> float:
    """The share of the learning rate: a short rise, and half a wave down to nearly nothing."""
    return min(1.0, (step + 1) / min(WARM_UP, max(total // 10, 1))) * (0.505 + 0.495 * math.cos(math.pi * step / total))
