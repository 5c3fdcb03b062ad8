"""How fast a training would go: a few batches and a look at held-out records, timed and thrown away."""

import statistics
import time
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from ehr.errors import TrainingStopped
from ehr.generators.d3pm import D3PMConfig
from ehr.records import Records
from worker.engine.audit.effort import WORK, operations
from worker.engine.audit.people import MOST_PEOPLE
from worker.engine.denoisers.few_patients import CALIBRATED_ON
from worker.engine.generators import FitRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.drawn_pairs import records_drawn
from worker.engine.training import Hooks, TrainingProgress
from worker.engine.training.lessons import plan_of_lessons
from worker.engine.training.loop import Plan

WARM_UP, BATCHES, MOST_SECONDS = 2, 14, 4.0  # steps, the first of which do not count, and when it is enough
TIMED_ON = 50_000  # training records: more change neither batches nor what a batch takes
SLOW = 1.0  # seconds of a step
LOOKED_AT, COUNTED = 1024, 8  # held-out records that are timed, and whose operations are counted
LOOKS_TO_DRAW = 5  # a record: sixteen calls, each cheaper than one that asks for everything
RESTRAINTS_TRIED = 3  # of those that training ends with, on average
# Of few records, passed over many times, held-out ones tell to stop before the last epoch as often as not: after so
# much of the epochs (six simulated data sets made 0.56 to 0.93 of them, docs/decisions/0116).
FEW_RECORDS, MANY_EPOCHS, MADE = 50_000, 48, 0.75
LESSON = 0.8  # of a step: a look of the wide network, and a step of the narrow one
# An audit looks at each of its people so often, as far as WORK operations for each attack allow, and compares them.
LOOKS, ATTACKS, PERSON_SECONDS = 100, 6, 0.0005


@dataclass(frozen=True)
class Pace:
    """The seconds that a training is made of."""

    step: float  # one batch
    batch: int  # its records
    look: float  # at one held-out record, once
    audit: float  # the attacks after training
    drawn: int = 0  # records in a round in which pairs are counted
    kept_look: float = 0.0  # at a record, by the network that is kept and draws them

    def training(self, config: D3PMConfig, train: int, holdout: int) -> float:
        """Of a training with so many records that goes on to its last epoch, without what comes after it."""
        return self._learning(config, train, holdout, 1.0) + self.ending(config, train)

    def expected(self, config: D3PMConfig, train: int, holdout: int) -> float:
        """Of the same as it is likely to be."""
        training = config.training
        may_give_up = holdout > 0 and training.patience is not None and training.epochs >= MANY_EPOCHS
        share = MADE if may_give_up and train < FEW_RECORDS else 1.0
        return self._learning(config, train, holdout, share) + self.ending(config, train)

    def _learning(self, config: D3PMConfig, train: int, holdout: int, share: float) -> float:
        """Of learning from records, with such a share of the epochs."""
        training = config.training
        held_out = min(holdout, training.holdout_records) * training.holdout_draws * self.look
        looks = training.epochs // training.evaluate_every
        calibration = min(train, CALIBRATED_ON) * self.look
        end = RESTRAINTS_TRIED * (held_out + 4 * calibration) if training.restrain_rare else 0.0
        return share * (training.epochs * (train // self.batch) * self.step + looks * held_out) + end

    def ending(self, config: D3PMConfig, train: int) -> float:
        """Of the lessons of a narrower network, and of drawing to correct it."""
        plan, per_epoch = Plan(config.training.epochs, self.batch, None, None), train // self.batch
        lessons = plan_of_lessons(plan, per_epoch).epochs * per_epoch if config.is_narrowed else 0
        return lessons * LESSON * self.step + config.calibration_rounds * self.drawing(self.drawn)

    def drawing(self, records: int) -> float:
        """Of drawing so many records."""
        return records * LOOKS_TO_DRAW * self.kept_look


def pace_of(request: FitRequest) -> Pace:
    """Of the training that is asked for."""
    times: list[float] = []

    def note(_: TrainingProgress) -> None:
        times.append(time.perf_counter())

    def enough() -> bool:
        return len(times) >= BATCHES or (len(times) > WARM_UP + 1 and times[-1] - begun > MOST_SECONDS)

    hooks = Hooks(on_progress=note, should_stop=enough)
    some = request.train if len(request.train) <= TIMED_ON else request.train.take(np.arange(TIMED_ON))
    generator, run = D3PMGenerator.prepare(replace(request, train=some, hooks=hooks, checkpoint=None))
    begun = time.perf_counter()
    with suppress(TrainingStopped):
        run.to_the_end()
    counted = [begun, *times] if len(times) <= WARM_UP + 1 else times[WARM_UP:]
    step = statistics.median(np.diff(counted).tolist())
    # of training records: a look at few of those that were held out would be one at a batch that is nearly empty
    records = request.train.take(np.arange(min(len(request.train), LOOKED_AT)))
    batch = run.plan.batch_size
    # a step is a look and the way back, which is twice as long; a slow network is not asked again to know that
    look = step / (3 * batch) if step > SLOW else _look_seconds(generator, records)
    kept_look = look
    if generator.config.is_narrowed:
        generator.denoiser = generator.network(generator.config.kept_denoiser, request.seed).to(generator.device)
        kept_look = _look_seconds(generator, records)
    drawn = records_drawn(generator, len(request.train))
    return Pace(step, batch, look, _audit_seconds(generator, request, records, kept_look), drawn, kept_look)


def _audit_seconds(generator: D3PMGenerator, request: FitRequest, records: Records, look: float) -> float:
    few = records.take(np.arange(min(len(records), COUNTED)))
    each = operations(lambda: generator.held_out_elbo(few, draws=1)) / len(few)
    unseen = 0 if request.holdout is None else 2 * len(request.holdout)  # and about as many test records
    people = min(len(request.train), MOST_PEOPLE) + min(unseen, MOST_PEOPLE)
    return people * PERSON_SECONDS + look * min(LOOKS * people, ATTACKS * WORK / max(each, 1.0))


def _look_seconds(generator: D3PMGenerator, records: Records) -> float:
    some = records.take(np.arange(min(len(records), LOOKED_AT)))
    generator.held_out_elbo(some, draws=1)
    begun = time.perf_counter()
    generator.held_out_elbo(some, draws=1)
    return (time.perf_counter() - begun) / len(some)
