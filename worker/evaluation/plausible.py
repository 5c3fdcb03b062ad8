"""Plausibility: could each record be a patient's, and do the records give themselves away as synthetic?"""

from functools import partial

import numpy as np

from ehr.records import Records
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.distinguisher import DISTINGUISHER
from worker.engine.metrics.groups_broken import GROUPS_BROKEN
from worker.engine.metrics.groups_broken import measure as broken
from worker.engine.metrics.measurement import CohortMetric, Plan, Result
from worker.evaluation.disclosure import Basis, public_metric
from worker.evaluation.plan import FamilyPlan, reported
from worker.evaluation.subject import CUT, Subject

COMPARED: tuple[CohortMetric, ...] = (DISTINGUISHER,)


def plausible_plan(subject: Subject, rng: np.random.Generator) -> FamilyPlan:
    """Groups that are broken, and metrics that compare the cohort with real records of the same kind."""
    test, train, synth = (subject.inside(each) for each in (subject.test, subject.train, subject.cohort))
    against = "real test records" if subject.condition is None else f"real test records that satisfy the condition{CUT}"
    basis = Basis.of(subject, synth, test, patients=len(test), in_slice=subject.condition is not None)
    plan: Plan[Result] = [
        *_groups(subject, synth, test),
        *(
            (metric.name, partial(_compared, metric, synth, test, train, stream))
            for metric, stream in zip(COMPARED, rng.spawn(len(COMPARED)), strict=True)
        ),
    ]
    return FamilyPlan.measuring(against, reported(plan, lambda result: public_metric(result, basis)))


def _groups(subject: Subject, synth: Records, test: Records) -> Plan[Result]:
    groups = subject.groups
    if groups is None:
        return []
    return [
        (
            GROUPS_BROKEN.name,
            lambda: Result(GROUPS_BROKEN, {"value": broken(groups, synth), "floor": broken(groups, test)}),
        )
    ]


def _compared(
    metric: CohortMetric, synth: Records, test: Records, train: Records, stream: np.random.Generator
) -> Result:
    """`floor`: real training records in the synthetic ones' place, as many of them."""
    size = min(len(synth), len(train))
    places = {"value": sampled(synth, size, stream), "floor": sampled(train, size, stream)}
    return Result(metric, {role: metric.measure(each, test, train, stream) for role, each in places.items()})
