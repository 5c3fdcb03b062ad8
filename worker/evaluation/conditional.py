"""A conditioned cohort: is it what was asked for, and like real patients who have it?"""

from collections.abc import Callable

import numpy as np

from ehr.records import Records
from worker.engine.metrics.conditional import plan_conditional
from worker.evaluation.figures import of_metric
from worker.evaluation.plan import FamilyPlan, reported
from worker.evaluation.subject import CUT, Subject


def conditional_plan(
    subject: Subject, unconditional: Callable[[], Records | None], rng: np.random.Generator
) -> FamilyPlan | None:
    """None without a condition. `unconditional` gives records of the same model drawn without it."""
    if subject.condition is None:
        return None
    unseen = Records.concatenate([subject.test, subject.holdout])
    plan = plan_conditional(subject.cohort, subject.condition, unseen, unconditional, rng, subject.effective)
    against = f"unseen real records that satisfy the condition, halved{CUT}"
    return FamilyPlan.measuring(against, reported(plan, of_metric))
