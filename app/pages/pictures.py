"""Which pictures a report has, and what they are drawn from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from app.pages import svg
from app.pages.codes import named, short_named
from app.pages.numbers import span
from app.pages.svg import Mark
from ehr.reports import FamilyReport, Figure, Figures, GuidedBar, PrevalencePoint, Report
from ehr.shareable import ShareableReport

MOST_BARS = 20
MOST_DOTS = 4000  # in one picture: more are no easier to see, and the page must stay small
ATTACKS_CAPTION = (
    " The line on a bar is its 95 % interval. A cohort betrays something only where its bar is longer "
    "than the control's by more than chance explains: the gain in the table below, with its interval, decides. An F1 "
    "score is 1 where everything is found and nothing is wrong, and 0 where nothing is found."
)


@dataclass(frozen=True)
class Picture:
    """A drawing, its caption with what stands out at its beginning, and what each kind of mark means."""

    drawing: Markup
    lead: str
    caption: str
    legend: Mapping[str, str] = field(default_factory=dict)
    dots: bool = False  # the marks are dots, not bars
    wide: bool = False  # across the page


def fidelity(report: Report) -> Iterator[Picture]:
    """Prevalences of all and of rare codes, codes per record, and how codes go together."""
    shown = report.pictures
    rare = [point for point in shown.prevalence if point.rare]
    for lead, points in (("All codes", shown.prevalence), ("Rare codes", rare)):
        if points:
            yield _prevalences(lead, points, report)
    if shown.sizes:
        bins = [(span(each.first, each.last), each.real, each.synthetic) for each in shown.sizes]
        label = "Share of records by number of codes, real and synthetic"
        drawing = svg.columns_and_outline(bins, label, "codes per record")
        caption = " Numbers of codes that few real patients have are put together."
        yield Picture(drawing, "Codes per record.", caption, {"real": "real", "synthetic": "synthetic"})
    if shown.correlation:
        names = [" with ".join(short_named(code, report) for code in point.codes) for point in shown.correlation]
        values = [(p.real, p.synthetic, name) for p, name in zip(shown.correlation, names, strict=True)]
        label = f"Correlation of {len(values)} pairs of common codes, real against synthetic"
        drawing = svg.scatter(values, label, "correlation in real records", "in synthetic records")
        caption = f" Each dot is one of the {len(values):,} most strongly linked pairs of common codes."
        yield Picture(drawing, "Codes that go together.", caption)


def _prevalences(lead: str, points: list[PrevalencePoint], report: Report) -> Picture:
    drawn = _spread(points)
    values = [(point.real, point.synthetic, short_named(point.code, report)) for point in drawn]
    label = f"{lead}: share of real records against share of synthetic records, {len(drawn)} codes"
    drawing = svg.scatter(values, label, "share of real records", "share of synthetic records", log=True)
    caption = f" Each dot is one of {len(points):,} codes; on the line it is as common as in reality."
    if len(drawn) < len(points):
        caption += f" To keep the page small, {len(drawn):,} of them are drawn, evenly from common to rare."
    return Picture(
        drawing, f"{lead}.", caption, {"synthetic": "a code", "zero": "no synthetic record has it"}, dots=True
    )


def _spread(points: list[PrevalencePoint]) -> list[PrevalencePoint]:
    """All points, or as many as there may be dots, evenly from common to rare codes."""
    if len(points) <= MOST_DOTS:
        return points
    common_first = sorted(points, key=lambda point: -point.real)
    return [common_first[i * len(points) // MOST_DOTS] for i in range(MOST_DOTS)]


def utility(report: Report) -> Iterator[Picture]:
    """Each metric of both classifiers, for each label."""
    metrics = report.utility.metrics.values()
    for name in dict.fromkeys(metric.name for metric in metrics):
        found = [metric for metric in metrics if metric.name == name]
        labelled = [(named(each.label or "", report), each.figures) for each in found]
        rows = _marked(labelled, {"real": "real", "value": "synthetic"})
        if rows:
            low = 0.5 if all(mark.low >= 0.5 for _, marks in rows for mark in marks) else 0.0
            lead = found[0].title or name
            drawing = svg.intervals(rows, f"{lead}, by disease", lead, low, 1.0)
            legend = {"real": "trained on real", "synthetic": "on synthetic"}
            yield Picture(drawing, lead, ", on real test records.", legend, dots=True)


def attacks(family: FamilyReport) -> Iterator[Picture]:
    """Attack beside control for each attack."""
    kinds = {"attack": "synthetic", "control": "real", "baseline": "other"}
    rows = _marked([(metric.title or metric.name, metric.figures) for metric in family.metrics.values()], kinds)
    if rows:
        end = min(1.0, 1.05 * max(mark.high for _, marks in rows for mark in marks))
        drawing = svg.bars(rows, "Success of each attack beside its control", "success of the attack", end)
        legend = {"synthetic": "attack on this cohort", "real": "control: records of other people", "other": "guessing"}
        yield Picture(drawing, "Attacks.", ATTACKS_CAPTION, legend)


def guided(report: Report) -> Iterator[Picture]:
    """How common codes are in reality, without and with the condition."""
    apart = "Codes that set such patients apart"
    for label, lead, caption, asked in (
        ("Codes asked for", "Codes asked for", ", among all real records, without and with the condition.", True),
        ("Codes that come with them", apart, ", real ones meeting the condition.", False),
    ):
        rows = [
            (f"{bar.code} {bar.description or ''}".strip(), _guided_marks(bar))
            for bar in report.pictures.guided
            if bar.asked is asked
        ]
        if rows:
            high = max(mark.value for _, marks in rows for mark in marks)
            drawing = svg.bars(rows, label, "share of records", min(1.0, max(high, 0.001) * 1.05), as_percent=True)
            legend = {"real": "real", "other": "unconditional synthetic", "synthetic": "this cohort"}
            yield Picture(drawing, lead, caption, legend)


def common_codes(report: ShareableReport) -> Iterator[Picture]:
    """How common the commonest codes are."""
    shown = report.synthetic.prevalence[:MOST_BARS]
    rows = [
        (f"{each.code} {report.names.get(each.code, '')}".strip(), [Mark("synthetic", *[each.synthetic] * 3)])
        for each in shown
    ]
    if rows:
        end = min(1.0, max(each.synthetic for each in shown) * 1.05)
        drawing = svg.bars(rows, "The commonest codes", "share of records", end, as_percent=True)
        yield Picture(drawing, "The commonest codes.", " The share of this cohort's records that have each.")


def _guided_marks(bar: GuidedBar) -> list[Mark]:
    values = (("real", bar.real), ("other", bar.unconditional), ("synthetic", bar.guided))
    return [Mark(kind, value, value, value) for kind, value in values if value is not None]


def _marked(rows: list[tuple[str, Figures]], kinds: dict[str, str]) -> list[tuple[str, list[Mark]]]:
    """Each name with the marks of its figures, without those that have none. `kinds`: role -> kind of mark."""
    marked = [
        (name, [mark for role, kind in kinds.items() for mark in _mark(kind, figures.get(role))])
        for name, figures in rows
    ]
    return [(name, marks) for name, marks in marked if marks]


def _mark(kind: str, figure: Figure | None) -> list[Mark]:
    if figure is None or figure.value is None or figure.low is None or figure.high is None:
        return []
    return [Mark(kind, figure.value, figure.low, figure.high)]
