"""From measurements to what a report shows: the same numbers, without any that give away 1 to 10 patients.

What a figure gives away is declared by its metric (`Discloses`); how it is shown then is decided here and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

import numpy as np

from ehr.disclosure import SMALLEST_SHOWN, Discloses
from ehr.records import Records
from ehr.reports import Figure, Figures, MetricReport, Verdict
from worker.engine.metrics.attacks import AttackResult
from worker.engine.metrics.measurement import CUT_TO_SIZE, Measurement, Metric, Result
from worker.engine.metrics.utility import LabelResult
from worker.evaluation.subject import Subject

NOT_SHOWN = "not shown for a cohort whose codes were chosen: it would reveal whether individual patients are there"
DIGITS = 4  # a number of twelve can be solved for the counts it was made of


@dataclass(frozen=True)
class Basis:
    """What figures were measured on, as far as it decides what may be shown of them."""

    patients: int  # real records
    cohort_size: int | None  # None inside a slice, where not even whether all of the cohort entered may be shown
    codes_chosen: bool  # by whoever made the cohort
    few_unknowns: bool  # hardly any code varies: a sum over codes is one unknown number of patients

    @classmethod
    def of(cls, subject: Subject, cohort: Records, real: Records, *, patients: int, in_slice: bool) -> "Basis":
        """For figures that compare `cohort` with `real`."""
        few = _codes_that_vary(cohort, real) < SMALLEST_SHOWN
        return cls(patients, None if in_slice else len(subject.cohort), subject.codes_chosen, few)


def _codes_that_vary(*sets: Records) -> int:
    """How many codes some records of any set have and others do not."""
    counts = [np.bincount(records.indices, minlength=records.n_codes) for records in sets]
    varying = [(there > 0) & (there < len(records)) for there, records in zip(counts, sets, strict=True)]
    return int(np.logical_or.reduce(varying).sum())


def public_figures(metric: Metric, measured: Mapping[str, Measurement], basis: Basis) -> Figures:
    """The figures of a metric by role, as what they disclose allows."""
    if metric.discloses is Discloses.SINGLE_PATIENT and basis.codes_chosen:
        # who may choose the codes of a cohort could ask about anyone whether they are there
        return dict.fromkeys(measured, Figure(absent=NOT_SHOWN))
    figures = {role: _figure(each, basis.cohort_size) for role, each in measured.items()}
    if metric.discloses is Discloses.SHARE_OF_PATIENTS or (
        metric.discloses is Discloses.FEW_UNKNOWNS and basis.few_unknowns
    ):
        return {role: rounded_figure(figure, rounding_step(basis.patients)) for role, figure in figures.items()}
    return figures


def _figure(measured: Measurement, cohort_size: int | None) -> Figure:
    """How many records entered is shown only where those are all synthetic records: any other number is a number of
    real patients. Inside a slice not even that they were cut to its size is: cohorts of several sizes would reveal how
    many patients it has."""
    note = measured.note
    if cohort_size is None and note is not None:
        note = "; ".join(part for part in note.split("; ") if part != CUT_TO_SIZE) or None
    return Figure(
        value=_short(measured.value),
        low=_short(measured.low),
        high=_short(measured.high),
        absent=measured.absent,
        note=note,
        n_used=measured.n_used if measured.n_used == cohort_size else None,
    )


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def public_metric(result: Result, basis: Basis) -> MetricReport:
    """A metric beside its yardsticks."""
    return _report(result.metric, public_figures(result.metric, result.measured, basis), result.verdict)


def public_label(metric: Metric, result: LabelResult, basis: Basis) -> MetricReport:
    """A utility metric of one label."""
    figures = public_figures(metric, result.measured[metric.name], basis)
    return _report(metric, figures, result.verdict(metric), label=result.label.name)


def public_attack(result: AttackResult, basis: Basis) -> MetricReport:
    """An attack with its variants and facts. A fact has no interval that could be widened by rounding, so one that is a
    share of patients is never shown."""
    metric, shown = result.metric, {Discloses.AGGREGATE}
    if not basis.codes_chosen:
        shown.add(Discloses.SINGLE_PATIENT)
    return _report(
        metric,
        public_figures(metric, result.roles.by_name(), basis),
        result.verdict,
        variants={name: public_figures(metric, each.by_name(), basis) for name, each in result.variants.items()},
        facts={name: float(value) for name, value in result.facts.items() if metric.facts[name] in shown},
    )


def _report(metric: Metric, figures: Figures, verdict: Verdict | None, **more: Any) -> MetricReport:
    return MetricReport(
        name=metric.name,
        title=metric.title,
        meaning=metric.meaning,
        direction=metric.direction,
        bounds=metric.bounds,
        figures=figures,
        verdict=verdict,
        **more,
    )


def rounding_step(patients: int) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that covers eleven of so many patients."""
    least = SMALLEST_SHOWN / max(patients, 1)
    power = 10.0 ** floor(log10(least))
    return next(step for factor in (1, 2, 5, 10) if (step := factor * power) >= least)


def rounded_figure(figure: Figure, step: float) -> Figure:
    """The figure in multiples of the step, its interval widened to the next ones."""
    if figure.value is None or figure.low is None or figure.high is None or figure.low == figure.high:
        return figure  # absent, or a number that does not depend on any patient
    digits = max(0, ceil(-log10(step)))

    def to_step(value: float) -> float:
        return round(round(value) * step, digits)

    note = f"rounded to {step:g}, so that no small number of patients can be worked out"
    return figure.model_copy(
        update={
            "value": to_step(figure.value / step),
            "low": to_step(floor(figure.low / step)),
            "high": to_step(ceil(figure.high / step)),
            "note": note if figure.note is None else f"{figure.note}; {note}",
        }
    )
