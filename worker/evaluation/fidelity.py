"""Fidelity: is the cohort like real test records, or like those of them that satisfy the condition?"""

import numpy as np

from worker.engine.metrics import plan_fidelity
from worker.engine.metrics.held_out_elbo import HELD_OUT_ELBO, LogLoss
from worker.engine.metrics.held_out_elbo import measure as measure_elbo
from worker.engine.metrics.measurement import SMALLEST_SLICE
from worker.evaluation.figures import of_metric
from worker.evaluation.plan import FamilyPlan, reported
from worker.evaluation.subject import CUT, Subject

EVER = ", by what each ever has"


def fidelity_plan(subject: Subject, rng: np.random.Generator) -> FamilyPlan:
    """Every fidelity metric, and how likely the model finds unseen records."""
    test, train, synth = (subject.inside(name) for name in ("test", "train", "cohort"))
    against = "real test records" if subject.over_time is None else f"real test patients{EVER}"
    if subject.is_conditioned:
        against += f" that satisfy the condition{CUT}"
    if subject.targets:
        against += " as they are: shares that were asked for count as differences"
    if subject.is_conditioned and min(len(test), len(train)) < SMALLEST_SLICE:
        reason = f"fewer than {SMALLEST_SLICE} real records of the train or test split satisfy the condition"
        return FamilyPlan.absent(against, reason)
    metric_rng, elbo_rng = rng.spawn(2)
    elbo = (HELD_OUT_ELBO.name, lambda: measure_elbo(_log_loss(subject), test, train, elbo_rng))
    plan = [*plan_fidelity(synth, test, train, metric_rng), elbo]
    return FamilyPlan.measuring(against, reported(plan, of_metric))


def _log_loss(subject: Subject) -> LogLoss | str:
    """How likely the model finds records, or why that is not measured."""
    generator = subject.generator
    if subject.is_conditioned:
        return "how likely a record is without the condition says nothing about a conditioned cohort"
    if not subject.own_data:
        return "the model has learned from other data"
    if subject.over_time is not None:
        return "a model of patients over time tells how likely visits are, not what a patient ever has"
    if generator is None:
        return "the model is gone"
    log_loss = generator.log_loss()
    return "this kind of generator cannot tell how likely a record is" if log_loss is None else log_loss
