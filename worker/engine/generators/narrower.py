"""After training: a narrower network, which draws faster, takes the place of the one that has learned from records."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ehr.errors import StateError
from ehr.streams import RecordStream
from worker.engine.checkpoints import Checkpoint
from worker.engine.denoisers import SparseDenoiser
from worker.engine.training import NO_HOOKS, Hooks, TrainingProgress, TrainingRun
from worker.engine.training.lessons import LOOKED_AT, TEACHER, Lessons, plan_of_lessons
from worker.engine.training.loop import Plan, Rows

if TYPE_CHECKING:
    from worker.engine.generators.d3pm import D3PMGenerator


def is_of_lessons(checkpoint: Checkpoint | None) -> bool:
    """Whether the training before had come to its end when the checkpoint was made."""
    return checkpoint is not None and bool(checkpoint.under(TEACHER))


def with_lessons(plan: Plan, records: int) -> Plan:
    """The plan of a training that lessons follow."""
    per_epoch = records // plan.batch_size
    return replace(plan, after=plan_of_lessons(plan, per_epoch).epochs * per_epoch)


def narrow(
    generator: "D3PMGenerator",
    train: Rows | RecordStream,
    training: Plan,
    seed: int,
    hooks: Hooks = NO_HOOKS,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Give the generator its narrower network, which learns from the one it has, after a training by this plan."""
    checkpoint = checkpoint if is_of_lessons(checkpoint) else None
    if checkpoint is not None:
        try:
            generator.denoiser.load_state_dict(checkpoint.under(TEACHER))
        except RuntimeError as error:
            raise StateError(f"the checkpoint belongs to another network: {error}") from None
        generator.curve = list(checkpoint.values["curve"])
    teacher, pupil = generator.denoiser, generator.network(generator.config.kept_denoiser, seed)
    assert isinstance(teacher, SparseDenoiser) and isinstance(pupil, SparseDenoiser)
    some = train.take(np.arange(min(len(train), LOOKED_AT)))
    lessons = Lessons(pupil, teacher, generator.noise, some, generator.device)

    def on_progress(progress: TrainingProgress) -> None:
        if hooks.on_progress is not None:  # the loss is that of learning from records, as all along
            loss = generator.curve[-1]["loss"] if generator.curve else progress.loss
            hooks.on_progress(replace(progress, loss=loss))

    plan = plan_of_lessons(training, len(train) // training.batch_size)
    watched = replace(hooks, on_progress=on_progress, should_settle=None)
    run = TrainingRun(lessons, train, plan, seed, watched, checkpoint)
    run.curve = list(generator.curve)
    run.to_the_end()
    generator.denoiser = pupil
