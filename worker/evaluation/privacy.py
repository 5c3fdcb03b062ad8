"""Privacy: the attacks on everyone, and on the patients who satisfy the condition."""

import logging

import numpy as np

from ehr.reports import FamilyReport
from worker.engine.metrics.privacy import plan_attacks
from worker.evaluation.figures import of_attack
from worker.evaluation.plan import FamilyPlan, Metrics, reported
from worker.evaluation.subject import CUT, Subject
from worker.evaluation.verdicts import CRASHED, FORBIDDEN, TOO_FEW, attacks_verdict

log = logging.getLogger(__name__)
NOT_ITS_DATA = "not measured, because the model has learned from other data; its report there judges privacy"


def privacy_plan(subject: Subject, rng: np.random.Generator) -> FamilyPlan:
    """The attacks on everyone the model learned from."""
    against = "unseen real records in the cohort's place (the control)"
    if not subject.own_data:
        return FamilyPlan.absent(against, NOT_ITS_DATA)
    if not subject.attack:
        return FamilyPlan.absent(against, "the terms of this data forbid attacks", FORBIDDEN)
    return _attacks(subject, rng, against, in_slice=False)


def slice_privacy_plan(subject: Subject, rng: np.random.Generator) -> FamilyPlan | None:
    """The attacks on the patients who satisfy the condition: the ones a conditioned cohort is about."""
    if not subject.is_conditioned or not subject.attack or not subject.own_data:
        return None
    against = f"unseen real records that satisfy the condition in the cohort's place{CUT}"
    return _attacks(subject, rng, against, in_slice=True)


def _attacks(subject: Subject, rng: np.random.Generator, against: str, *, in_slice: bool) -> FamilyPlan:
    train, holdout, test = (subject.attacked(name, in_slice=in_slice) for name in ("train", "holdout", "test"))

    def conclude(metrics: Metrics) -> FamilyReport:
        if in_slice and all(metric.verdict is None for metric in metrics.values()):
            reason = next(iter(metrics.values())).figures["attack"].absent
            return FamilyReport(against=against, absent=reason, verdict=TOO_FEW)
        return FamilyReport(against=against, metrics=metrics, verdict=attacks_verdict(metrics.values()))

    def crashed(error: Exception) -> FamilyReport:  # whatever it is: without this verdict the cohort must not leave
        log.error("privacy evaluation crashed", extra={"type": type(error).__name__}, exc_info=error)
        return FamilyReport(against=against, absent=f"an unexpected {type(error).__name__}", verdict=CRASHED)

    plan = plan_attacks(subject.attacked("cohort"), train, holdout, test, rng)
    steps = reported(plan, of_attack, prefix="slice " if in_slice else "")
    return FamilyPlan(conclude, steps, crashed)
