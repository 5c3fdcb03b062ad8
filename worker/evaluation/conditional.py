"""A conditioned cohort: is it what was asked for, and like real patients who have it?"""

from collections.abc import Callable

import numpy as np

from ehr.histories import Histories
from ehr.history_conditions import HistoryCondition
from ehr.records import Records
from worker.engine.metrics.conditional import plan_conditional, plan_slice
from worker.evaluation.figures import of_metric
from worker.evaluation.plan import FamilyPlan, reported
from worker.evaluation.subject import CUT, OverTime, Subject


def conditional_plan(
    subject: Subject, unconditional: Callable[[], Records | None], rng: np.random.Generator
) -> FamilyPlan | None:
    """None without a condition. `unconditional` gives records of the same model drawn without it."""
    if subject.over_time is not None and subject.over_time.condition is not None:
        return _over_time(subject, subject.over_time, subject.over_time.condition, rng)
    if subject.condition is None:
        return None
    unseen = Records.concatenate([subject.test, subject.holdout])
    plan = plan_conditional(subject.cohort, subject.condition, unseen, unconditional, rng, subject.effective)
    against = f"unseen real records that satisfy the condition, halved{CUT}"
    return FamilyPlan.measuring(against, reported(plan, of_metric))


def _over_time(subject: Subject, found: OverTime, condition: HistoryCondition, rng: np.random.Generator) -> FamilyPlan:
    """Who satisfies the condition is told by visits; what such patients have, by what each ever has."""
    unseen = Histories.concatenate([found.test, found.holdout])
    inside = unseen.take(np.flatnonzero(condition.satisfied_by(unseen))).ever()
    met = condition.satisfied_by(found.cohort)
    plan = plan_slice(subject.cohort, met, inside, lambda: None, rng, subject.effective)
    against = f"unseen real patients who satisfy the condition, by what each ever has, halved{CUT}"
    return FamilyPlan.measuring(against, reported(plan, of_metric))
