"""From measurements to what a report says: the same numbers, without any that tell of 1 to 10 patients."""

from collections.abc import Mapping
from math import ceil, floor, log10

from ehr.disclosure import SMALLEST_SHOWN
from ehr.reports import Figure, Figures, MetricReport, Verdict
from worker.engine.metrics import measurement as engine
from worker.engine.metrics.attacks import AttackResult

# Shares of real patients, or what can be made one: whoever brings a cohort in which all records have three codes learns
# by `mcad` how many patients have three, and by `auprc` of a classifier that knows nothing how many have the disease.
OF_PATIENTS = ("mir", "mia_tpr_at_fpr", "mcad", "slice_mcad", "auprc")
# The same where hardly any code of a slice is free: what is added up then is one unknown number of patients.
OF_FEW_UNKNOWNS = ("slice_prevalence_l1",)
# What tells whether some patient has exactly a record: who may choose the codes of a cohort could ask it about anyone.
# Of the facts of an attack, only those that are not made of patients' records are told then.
OF_ONE_PATIENT = ("exact_matches",)
HARMLESS_FACTS = ("known",)
NOT_TOLD = "not told for a cohort whose codes were chosen, because it would tell whether single patients are there"
DIGITS = 4  # a number of twelve can be solved for the counts it was made of


def told_figure(measured: engine.Measurement, cohort_size: int | None) -> Figure:
    """A measurement. How many records entered is told only where those are all synthetic records: any other number is a
    number of real patients. `cohort_size` is None inside a slice: there not even whether all entered may be told, since
    cohorts of several sizes would tell how many patients the slice has."""
    n_used = measured.n_used if measured.n_used == cohort_size else None
    note = measured.note
    if cohort_size is None and note is not None:
        note = "; ".join(part for part in note.split("; ") if part != engine.CUT_TO_SIZE) or None
    return Figure(
        value=_short(measured.value),
        low=_short(measured.low),
        high=_short(measured.high),
        absent=measured.absent,
        note=note,
        n_used=n_used,
    )


def told_figures(
    name: str,
    figures: Mapping[str, engine.Measurement],
    cohort_size: int | None,
    patients: int,
    few_unknowns: bool = False,
) -> Figures:
    """The figures of a metric of that name, measured on so many real records; those that are shares of patients are
    rounded so that no small number of patients can be worked out."""
    told = {role: told_figure(measured, cohort_size) for role, measured in figures.items()}
    if name not in (OF_PATIENTS + OF_FEW_UNKNOWNS if few_unknowns else OF_PATIENTS):
        return told
    return {role: rounded(figure, rounding_step(patients)) for role, figure in told.items()}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def told_verdict(verdict: engine.Verdict | None) -> Verdict | None:
    return None if verdict is None else Verdict(level=verdict.level, reason=verdict.reason, advice=verdict.advice)


def told_metric(
    metric: engine.Metric,
    figures: Mapping[str, engine.Measurement],
    verdict: engine.Verdict | None,
    cohort_size: int | None,
    patients: int,
    label: str | None = None,
    few_unknowns: bool = False,
) -> MetricReport:
    """A metric with its figures by role, measured on so many real records."""
    return MetricReport(
        name=metric.name,
        label=label,
        meaning=metric.meaning,
        direction=metric.direction,
        bounds=metric.bounds,
        figures=told_figures(metric.name, figures, cohort_size, patients, few_unknowns),
        verdict=told_verdict(verdict),
    )


def told_attack(result: AttackResult, cohort_size: int | None, patients: int, codes_chosen: bool) -> MetricReport:
    """An attack on so many real records, with a cohort whose codes were chosen by whoever reads this or not."""
    roles = result.roles.by_name()
    if codes_chosen and result.metric.name in OF_ONE_PATIENT:
        roles = dict.fromkeys(roles, engine.Measurement(absent=NOT_TOLD))
    told = told_metric(result.metric, roles, result.verdict, cohort_size, patients)
    variants = {
        name: told_figures(result.metric.name, each.by_name(), cohort_size, patients)
        for name, each in result.variants.items()
    }
    allowed = HARMLESS_FACTS if codes_chosen else tuple(result.known)
    facts = {name: float(value) for name, value in result.known.items() if name in allowed}
    return told.model_copy(update={"variants": variants, "facts": facts})


def rounding_step(patients: int) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that covers eleven of so many patients."""
    least = SMALLEST_SHOWN / max(patients, 1)
    power = 10.0 ** floor(log10(least))
    return next(step for factor in (1, 2, 5, 10) if (step := factor * power) >= least)


def rounded(figure: Figure, step: float) -> Figure:
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
