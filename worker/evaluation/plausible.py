"""Plausibility: could each record be a patient's, and do the records give themselves away as synthetic?"""

from functools import partial

import numpy as np

from ehr.groups import Groups
from ehr.history_conditions import HistoryCondition
from ehr.records import Records
from ehr.reports import Notable
from ehr.rules import Rules
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.distinguisher import DISTINGUISHER, told_apart
from worker.engine.metrics.groups_broken import GROUPS_BROKEN
from worker.engine.metrics.groups_broken import measure as groups_broken
from worker.engine.metrics.measurement import Measurement, Metric, Plan, Result
from worker.engine.metrics.rules_broken import RULES_BROKEN
from worker.engine.metrics.rules_broken import measure as rules_broken
from worker.evaluation.figures import of_metric
from worker.evaluation.plan import FamilyPlan, Metrics
from worker.evaluation.subject import CUT, Subject

MOST_NOTABLE = 10
LEAST_WEIGHT = 0.01  # of what a classifier tells by, that is worth a line


def plausible_plan(subject: Subject, rng: np.random.Generator) -> FamilyPlan:
    """What the records break, and whether a classifier tells them from real records of the same kind."""
    test, train, synth = (subject.inside(name) for name in ("test", "train", "cohort"))
    against = f"real test records that satisfy the condition{CUT}" if subject.is_conditioned else "real test records"
    steps: list[tuple[str, partial[Metrics]]] = []
    held = _held_to_rules(subject, synth, test)
    if subject.groups is not None:
        steps.append((GROUPS_BROKEN.name, partial(_groups, subject.groups, *held)))
    if subject.rules is not None:
        steps.append((RULES_BROKEN.name, partial(_rules, _rules_of(subject), *held, subject.vocabulary.codes)))
    codes, (stream,) = subject.vocabulary.codes, rng.spawn(1)
    steps.append((DISTINGUISHER.name, partial(_told_apart, synth, test, train, codes, stream)))
    plan: Plan[Metrics] = steps
    return FamilyPlan.measuring(against, plan)


def _held_to_rules(subject: Subject, synth: Records, test: Records) -> tuple[Records, Records]:
    """The records of which groups and rules are true: of patients over time, each visit with what its patient is."""
    found = subject.over_time
    if found is None:
        return synth, test
    return found.inside("cohort").visits_with_static(), found.inside("test").visits_with_static()


def _rules_of(subject: Subject) -> Rules:
    """A cohort that was asked to break a rule is not held to it."""
    assert subject.rules is not None
    over_time = subject.over_time
    if over_time is None:
        return subject.rules.without(subject.condition)
    return rules_asked_over_time(subject.rules, over_time.condition)


def rules_asked_over_time(rules: Rules, condition: HistoryCondition | None) -> Rules:
    """Those that patients of whom this is asked are held to. Where what is asked is what a found rule excludes, all
    found rules give way as a whole (docs/decisions/0111)."""
    held = rules
    for asked in () if condition is None else condition.at_visits():
        if len(held.without(asked)) < len(held):
            held = rules.only_certain.without(asked)
    return held


def _groups(groups: Groups, synth: Records, test: Records) -> Metrics:
    broken = groups.broken_by(synth).mean(axis=0) if len(synth) else np.zeros(len(groups))
    notable = [
        Notable(codes=[groups.groups[i].name], note=f"not {groups.groups[i].rule}", share=float(broken[i]))
        for i in np.argsort(-broken, kind="stable")
        if broken[i] > 0
    ]
    return _reported(GROUPS_BROKEN, groups_broken(groups, synth), groups_broken(groups, test), notable)


def _rules(rules: Rules, synth: Records, test: Records, codes: tuple[str, ...]) -> Metrics:
    implied = {tuple(pair) for pair in rules.implies.tolist()}
    notable = [
        Notable(
            codes=[codes[a], codes[b]],
            note="without the second" if (a, b) in implied else "together",
            share=count / len(synth),
        )
        for a, b, count in rules.breaks(synth)[:MOST_NOTABLE]
    ]
    return _reported(RULES_BROKEN, rules_broken(rules, synth), rules_broken(rules, test), notable)


def _told_apart(
    synth: Records, test: Records, train: Records, codes: tuple[str, ...], stream: np.random.Generator
) -> Metrics:
    """`floor`: real training records in the synthetic ones' place, as many of them."""
    size = min(len(synth), len(train))
    value, weights = told_apart(sampled(synth, size, stream), test, stream)
    floor, _ = told_apart(sampled(train, size, stream), test, stream)
    notable = [Notable(codes=[codes[code]], share=share) for code, share in weights if share >= LEAST_WEIGHT]
    return _reported(DISTINGUISHER, value, floor, notable)


def _reported(metric: Metric, value: Measurement, floor: Measurement, notable: list[Notable]) -> Metrics:
    report = of_metric(Result(metric, {"value": value, "floor": floor}))
    return {metric.name: report.model_copy(update={"notable": notable[:MOST_NOTABLE]})}
