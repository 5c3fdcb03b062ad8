"""How surprised is the model by records it has not seen?"""

from collections.abc import Callable

import numpy as np

from ehr.records import Records
from worker.engine.independent import independent_log_loss
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.intervals import Z
from worker.engine.metrics.measurement import Bounds, Measurement, Metric, Result, Words
from worker.engine.metrics.verdicts import Limits, near_yardstick

BOUNDS: Bounds = (0.0, None)
FEWEST_RECORDS = 2  # one has no standard error
MAX_RECORDS = 4000
LogLoss = Callable[[Records], tuple[float, float]]  # nats per record and its standard error


def measure(log_loss: LogLoss | str, test: Records, train: Records, rng: np.random.Generator) -> Result:
    """The model's and the independent codes' nats on the same test records; a text says why the model is not asked."""
    no_floor = Measurement(absent="how well the best possible model would do is not known")
    if len(test) < FEWEST_RECORDS:
        log_loss = f"there are fewer than {FEWEST_RECORDS} test records"
    if isinstance(log_loss, str):
        missing = Measurement(absent=log_loss)
        return Result(HELD_OUT_ELBO, {"value": missing, "floor": no_floor, "independent": missing})
    unseen = sampled(test, MAX_RECORDS, rng)
    note = None if len(unseen) == len(test) else f"on {MAX_RECORDS:,} random test records"
    value, independent = (
        Measurement.within(BOUNDS, nats, nats - Z * error, nats + Z * error, note=note)
        for nats, error in (log_loss(unseen), independent_log_loss(train.prevalence(), unseen))
    )
    return Result(HELD_OUT_ELBO, {"value": value, "floor": no_floor, "independent": independent})


HELD_OUT_ELBO = Metric(
    name="held_out_elbo",
    family="fidelity",
    title="Surprise at unseen records (nats)",
    direction="lower",
    bounds=BOUNDS,
    meaning="How much a real, unseen record surprises the model, counted in nats: 0.7 nats fewer mean that the model "
    "finds the record twice as likely.",
    rule=near_yardstick("independent", "lower", Limits(good=0.0, sure=1.0, fail=1.0)),
    words=Words(
        good="Unseen patients surprise the model no more than their separate codes would.",
        caution="Unseen patients surprise the model slightly more than their separate codes would.",
        fail="The model has not learned how codes go together: unseen patients surprise it more than unrelated codes "
        "would.",
        unsure="There are too few test records to tell whether the model has learned how codes go together.",
        advice="Train longer.",
    ),
)
