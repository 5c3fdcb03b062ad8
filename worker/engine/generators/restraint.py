"""What training does in the end (restraint about what few patients have taught, and what follows it), for a model that
was trained without it."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records
from worker.engine.denoisers.few_patients import FewPatients
from worker.engine.generators.drawn_pairs import calibrate_pairs
from worker.engine.generators.narrower import narrow
from worker.engine.training.d3pm import D3PMLearner

if TYPE_CHECKING:
    from worker.engine.generators.d3pm import D3PMGenerator


def restrain(
    generator: "D3PMGenerator",
    train: Records,
    holdout: Records | None,
    seed: int = 0,
    families: NDArray[np.int64] | None = None,
    drawing_width: int | None = None,
) -> int | None:
    """Restrain what few of the training records have taught, as training does in the end; how strongly. With a
    `drawing_width`, a network of that width takes its place."""
    denoiser, device = generator.denoiser, generator.device
    few = FewPatients.of(train, device, denoiser.code_tables.paired, families)
    learner = D3PMLearner(denoiser, generator.noise, generator.config.training, device, holdout, few)
    learner.load_weights(learner.restrained(learner.best, seed))
    generator.config = generator.config.model_copy(update={"drawing_width": drawing_width})
    if generator.config.is_narrowed:
        narrow(generator, train, learner.plan(len(train)), seed)
    calibrate_pairs(generator, few, seed)
    return learner.restraint
