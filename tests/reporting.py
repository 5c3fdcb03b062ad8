"""A small population, cohorts that betray it or do not, and whole reports on them."""

from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from ehr.conditions import AskedCondition, Condition
from ehr.records import Records
from ehr.reports import Asked, Report
from ehr.shareable import CohortDescription
from ehr.vocabulary import Vocabulary
from worker.engine.generators import FitRequest, Generator, SampleRequest, generator_named
from worker.engine.metrics import classifier
from worker.engine.metrics.measurement import Measured, Plan
from worker.engine.population import simulated_population
from worker.evaluation import ReportPlan, Subject
from worker.evaluation.description import Tally
from worker.evaluation.subject import Watch

IDS = {
    "job_id": "job_" + "1" * 32,
    "cohort_id": "job_" + "2" * 32,
    "model_id": "mdl_" + "3" * 32,
    "dataset_id": "ds_" + "4" * 32,
}
DIABETES = "ICD10CM:E11"


@cache
def real_sets() -> dict[str, Records]:
    """Independent samples of one population: what the model saw, the holdout, the test split, and other people."""
    population = simulated_population()
    sizes = {"train": 4000, "holdout": 1000, "test": 3000, "others": 2000}
    streams = np.random.default_rng(3).spawn(len(sizes))
    return {name: population.sample(n, rng) for (name, n), rng in zip(sizes.items(), streams, strict=True)}


@cache
def vocabulary() -> Vocabulary:
    return Vocabulary(tuple(simulated_population().vocabulary))


def copies(n: int) -> Records:
    """The first training records themselves."""
    return real_sets()["train"].take(np.arange(n))


def some_copies(n: int, share: float) -> Records:
    """Records of other people, and copies of that share of the training records."""
    train, others = real_sets()["train"], real_sets()["others"]
    copied = int(share * len(train))
    return Records.concatenate([train.take(np.arange(copied)), others.take(np.arange(n - copied))])


def perturbed(n: int, flips: int) -> Records:
    """Training records with some codes flipped: none is a copy, none is within the paper's threshold of 3."""
    rng = np.random.default_rng(4)
    x = copies(n).to_dense(np.uint8)
    for row in x:
        row[rng.choice(x.shape[1], flips, replace=False)] ^= 1
    return Records.from_dense(x)


def measured(plan: Plan[Measured]) -> dict[str, Measured]:
    """Everything in the plan, by name."""
    return {name: measure() for name, measure in plan}


def subject(cohort: Records, **changes: Any) -> Subject:
    real = real_sets()
    values: dict[str, Any] = {"train": real["train"], "holdout": real["holdout"], "test": real["test"], "ids": IDS}
    return Subject(cohort, vocabulary(), **values | {"labels": [DIABETES]} | changes)


def report_on(subject: Subject, rng: np.random.Generator, watch: Watch = lambda name, done: None) -> Report:
    return ReportPlan.of(subject, rng).carry_out(watch)


def small_report(conditioned: bool = False) -> Report:
    """A report on a cohort of the independent generator."""
    return _made(conditioned)


@cache
def small_description(conditioned: bool = False) -> CohortDescription:
    """Of the same cohort by itself."""
    _, condition, cohort = _cohort(conditioned)
    tally = Tally(vocabulary(), condition)
    tally.add(cohort)
    ids = {name: IDS[name] for name in ("cohort_id", "model_id", "dataset_id")}
    sizes = {"records": len(cohort), "codes": len(vocabulary())}
    asked = AskedCondition(all_of=[DIABETES]) if conditioned else None
    return CohortDescription(**ids, **sizes, condition=asked, synthetic=tally.described(None))


@cache
def _cohort(conditioned: bool) -> tuple[Generator, Condition | None, Records]:
    model = generator_named("independent").fit(FitRequest(train=real_sets()["train"]))
    condition = Condition.of(len(vocabulary()), all_of=[vocabulary().positions[DIABETES]]) if conditioned else None
    return model, condition, model.sample(SampleRequest(n=1500, seed=1, condition=condition))


@cache
def _made(conditioned: bool) -> Report:
    model, condition, cohort = _cohort(conditioned)
    asked = Asked(all_of=[DIABETES], support_in_training=900) if conditioned else None
    made = subject(cohort, condition=condition, asked=asked, generator=model)
    with patch.object(classifier, "TREES", 100):  # what a report looks like does not depend on it
        return report_on(made, np.random.default_rng(5))
