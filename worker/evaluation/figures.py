"""From measurements to a report's figures: the same numbers in the report's form."""

from collections.abc import Mapping
from typing import Any

from ehr.reports import Figure, Figures, MetricReport, Verdict
from worker.engine.metrics.attacks import AttackResult
from worker.engine.metrics.measurement import Measurement, Metric, Result
from worker.engine.metrics.utility import LabelResult


def figures(measured: Mapping[str, Measurement]) -> Figures:
    """By role."""
    return {role: figure(each) for role, each in measured.items()}


def figure(measured: Measurement) -> Figure:
    return Figure(
        value=measured.value,
        low=measured.low,
        high=measured.high,
        absent=measured.absent,
        note=measured.note,
        n_used=measured.n_used,
    )


def of_metric(result: Result) -> MetricReport:
    """A metric beside its yardsticks."""
    return _report(result.metric, figures(result.measured), result.verdict)


def of_label(metric: Metric, result: LabelResult) -> MetricReport:
    """A utility metric of one label."""
    measured = figures(result.measured[metric.name])
    return _report(metric, measured, result.verdict(metric), label=result.label.name)


def of_attack(result: AttackResult) -> MetricReport:
    """An attack with its variants and facts."""
    return _report(
        result.metric,
        figures(result.roles.by_name()),
        result.verdict,
        variants={name: figures(each.by_name()) for name, each in result.variants.items()},
        facts={name: float(value) for name, value in result.facts.items()},
    )


def _report(metric: Metric, measured: Figures, verdict: Verdict | None, **more: Any) -> MetricReport:
    return MetricReport(
        name=metric.name,
        title=metric.title,
        meaning=metric.meaning,
        direction=metric.direction,
        bounds=metric.bounds,
        figures=measured,
        verdict=verdict,
        **more,
    )
