"""A metric is one definition and one entry in its family's tuple: the report, its progress and its page follow."""

from dataclasses import replace

import numpy as np
import pytest

from app.pages import report_page
from ehr.errors import ConfigError
from ehr.records import Records
from ehr.reports import FAMILIES, Report
from tests.reporting import real_sets, subject
from worker.engine.metrics import FIDELITY, CohortMetric, Measurement
from worker.engine.metrics.attacks import AttackMetric, AttackResult, AttackSets, Roles, certain
from worker.engine.metrics.conditional import SLICE
from worker.engine.metrics.measurement import Words
from worker.engine.metrics.privacy import PRIVACY
from worker.engine.metrics.utility import UTILITY
from worker.engine.metrics.verdicts import Limits, by_gain, near_yardstick
from worker.evaluation import ReportPlan


def measure(cohort: Records, test: Records, train: Records, rng: np.random.Generator) -> Measurement:
    value = abs(float(cohort.sizes().mean() - test.sizes().mean()))
    return Measurement.within((0.0, None), value, value - rng.random(), value + 1, len(cohort))


MEAN_SIZE = CohortMetric(
    name="mean_size",
    family="fidelity",
    title="Mean number of codes & more",
    direction="lower",
    bounds=(0.0, None),
    meaning="By how many codes the mean patient differs.",
    rule=near_yardstick("floor", "lower", Limits(good=100.0, sure=200.0, fail=300.0)),
    words=Words(good="The mean patient is right.", caution="c", fail="f", advice="a"),
    measure=measure,
)


def is_there(sets: AttackSets, rng: np.random.Generator) -> AttackResult:
    roles = Roles(certain(0.3), certain(0.2), certain(0.0), certain(0.1))
    return AttackResult(IS_THERE, roles, {"asked twice": roles}, {"tried": 7, "found": 1})


IS_THERE = AttackMetric(
    name="is_there",
    family="privacy",
    title="Asking for one patient",
    direction="lower",
    bounds=(0.0, 1.0),
    meaning="Whether someone is there.",
    rule=by_gain(caution_above=0.01, fail_above=0.05, unsure_above=0.2),
    words=Words(good="g", caution="c", fail="{tried} were tried.", advice="a"),
    measure=is_there,
)


def reported(monkeypatch: pytest.MonkeyPatch, new: bool) -> tuple[Report, list[str], list[str]]:
    """The report, the names it announced and those that its progress went through."""
    if new:
        monkeypatch.setattr("worker.engine.metrics.FIDELITY", (*FIDELITY, MEAN_SIZE))
        monkeypatch.setattr("worker.engine.metrics.privacy.PRIVACY", (*PRIVACY, IS_THERE))
    cohort = real_sets()["others"].take(np.arange(400))
    plan = ReportPlan.of(subject(cohort, labels=[]), np.random.default_rng(0))
    seen: list[str] = []
    report = plan.carry_out(lambda name, done: seen.append(name))
    return report, [name for name, _ in plan.steps], seen


def test_a_new_metric_is_in_the_report_its_progress_and_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before, announced_before, _ = reported(monkeypatch, new=False)
    report, announced, seen = reported(monkeypatch, new=True)
    for family, metric in (("fidelity", MEAN_SIZE), ("privacy", IS_THERE)):
        told, known = report.families[family].metrics, before.families[family].metrics
        assert {name: told[name] for name in known} == known  # the numbers of the others stay as they were
        mine = told[metric.name]
        assert (mine.title, mine.meaning) == (metric.title, metric.meaning) and mine.verdict is not None
    assert report.fidelity.metrics["mean_size"].figures.keys() == {"value", "floor", "independent"}
    assert report.fidelity.metrics["mean_size"].verdict.reason == "The mean patient is right."  # type: ignore[union-attr]
    assert report.privacy.metrics["is_there"].verdict.reason == "7 were tried."  # type: ignore[union-attr]
    assert report.privacy.metrics["is_there"].facts == {"tried": 7, "found": 1}
    assert [*announced, "pictures"] == seen and len(announced) == len(announced_before) + 2
    assert announced.index("mean_size") == announced.index(FIDELITY[-1].name) + 1
    assert announced.index("is_there") == announced.index(PRIVACY[-1].name) + 1
    page = report_page(report)
    assert "Mean number of codes &amp; more" in page and "Asking for one patient" in page
    assert 'data-path="fidelity.metrics.mean_size.figures.value.value"' in page
    assert 'data-path="privacy.metrics.is_there.figures.gain.value"' in page


def test_a_metric_of_no_family_cannot_be_made() -> None:
    with pytest.raises(ConfigError, match="fidelity, plausible, time, utility, conditional"):
        replace(MEAN_SIZE, family="beauty")


def test_every_metric_stands_in_the_tuple_of_its_family_and_has_a_title() -> None:
    for family, metrics in (("fidelity", FIDELITY), ("conditional", SLICE), ("utility", UTILITY), ("privacy", PRIVACY)):
        assert {metric.family for metric in metrics} == {family} <= {each.name for each in FAMILIES}
        assert all(metric.title for metric in metrics)
