"""Utility: what a classifier learns from the cohort, and what it gains when the cohort is added to real records."""

from collections.abc import Callable
from functools import partial

import numpy as np

from ehr.records import Records
from ehr.reports import AugmentationReport, FamilyReport
from worker.engine.metrics.classifier import ClassifierError, Label
from worker.engine.metrics.utility import UTILITY, augment_label, measurable, predict_label
from worker.evaluation.figures import figures, of_label
from worker.evaluation.plan import FamilyPlan, Metrics
from worker.evaluation.subject import Subject

AGAINST = "a classifier trained on as many real records, both tested on real test records"
CONDITIONED = "a conditioned cohort is no sample of everyone; see what it adds to real records below"
OVER_TIME = "a conditioned cohort is no sample of everyone"
NO_LABELS = "the data has none of the diseases to predict"
GUIDED, UNGUIDED = "real + guided synthetic", "real + unconditional synthetic"


def utility_plan(
    subject: Subject,
    unconditional: Callable[[], Records | None],
    rng: np.random.Generator,
    augmentation: list[AugmentationReport],
) -> FamilyPlan:
    """What adding records to real ones does is put into `augmentation`. The steps draw from one stream of random
    numbers, one after the other."""

    def predict(label: Label) -> Metrics:
        result = predict_label(label, subject.cohort, subject.test, subject.train, rng)
        return {f"{metric.name}: {label.name}": of_label(metric, result) for metric in UTILITY}

    def augment(label: Label) -> Metrics:
        if label.codes and measurable(label, [subject.test, subject.train]) is None:
            unguided, guided = (unconditional(), subject.cohort) if conditioned else (subject.cohort, None)
            augmentation.append(_augmented(subject, label, {UNGUIDED: unguided, GUIDED: guided}, rng))
        return {}

    def no_classifier(error: Exception) -> FamilyReport:
        if not isinstance(error, ClassifierError):
            raise error
        augmentation.clear()
        return FamilyReport(against=AGAINST, absent=str(error))

    conditioned = subject.is_conditioned
    if subject.condition is not None:
        plan, steps = FamilyPlan.absent(AGAINST, CONDITIONED), [("augmentation", partial(augment, _asked(subject)))]
    elif conditioned:
        plan, steps = FamilyPlan.absent(AGAINST, OVER_TIME), []
    elif not subject.label_list:
        plan, steps = FamilyPlan.absent(AGAINST, NO_LABELS), []
    else:
        kinds = (("utility", predict), ("augmentation", augment))
        steps = [(name, partial(measure, label)) for label in subject.label_list for name, measure in kinds]
        plan = FamilyPlan.measuring(AGAINST, steps)
    return FamilyPlan(plan.conclude, steps, no_classifier)


def _asked(subject: Subject) -> Label:
    """What the condition asks for, as a label to predict."""
    assert subject.condition is not None and subject.asked is not None
    codes = tuple(sorted(subject.condition.all_of.union(*subject.condition.any_of)))
    return Label(", ".join([*subject.asked.all_of, *(code for group in subject.asked.any_of for code in group)]), codes)


def _augmented(
    subject: Subject, label: Label, arms: dict[str, Records | None], rng: np.random.Generator
) -> AugmentationReport:
    result = augment_label(label, subject.train, subject.test, arms, rng)
    areas = {arm: figures(measured) for arm, measured in result.arms.items()}
    added = dict(result.added)
    return AugmentationReport(label=label.name, arms=areas, real_records=result.start, added=added)
