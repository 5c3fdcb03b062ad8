"""Which pictures a report has, and what they are drawn from."""

from app.report_page import svg
from app.report_page.svg import Mark
from app.report_page.text import span
from ehr.reports import Figure, Figures, GuidedBar, PrevalencePoint, Report

MOST_DOTS = 4000  # in one picture: more are no easier to see, and the page must stay small
ATTACKS = {
    "mir": "Membership, nearly equal records (F1)",
    "mia_tpr_at_fpr": "Membership, careful attacker",
    "air": "Inferring other codes (F1)",
    "dcr": "Closer to training patients",
    "nndr": "Singling out training patients",
    "exact_matches": "Copies (share of records)",
}
ATTACKS_CAPTION = (
    "<b>Attacks.</b> The line on a bar is its 95 % interval. A cohort betrays something only where its bar is longer "
    "than the control's by more than chance explains: the gain in the table below, with its interval, decides. An F1 "
    "score is 1 where everything is found and nothing is wrong, and 0 where nothing is found."
)


def fidelity(report: Report) -> str:
    """Prevalences of all and of rare codes, codes per record, and how codes go together."""
    shown = report.pictures
    drawn = []
    for title, points in (
        ("All codes", shown.prevalence),
        ("Rare codes", [point for point in shown.prevalence if point.rare]),
    ):
        if points:
            drawn.append(_prevalences(title, points))
    if shown.sizes:
        bins = [(span(each.first, each.last), each.real, each.synthetic) for each in shown.sizes]
        label = "Share of records by number of codes, real and synthetic"
        picture = svg.columns_and_outline(bins, label, "codes per record")
        caption = "<b>Codes per record.</b> Numbers of codes that few real patients have are put together."
        drawn.append(_figure(_legend({"real": "real", "synthetic": "synthetic"}) + picture, caption))
    if shown.correlation:
        values = [(point.real, point.synthetic, " with ".join(point.codes)) for point in shown.correlation]
        label = f"Correlation of {len(values)} pairs of common codes, real against synthetic"
        picture = svg.scatter(values, label, "correlation in real records", "in synthetic records")
        caption = f"Each dot is one of the {len(values):,} most strongly linked pairs of common codes."
        drawn.append(_figure(picture, f"<b>Codes that go together.</b> {caption}"))
    return _all(drawn)


def _prevalences(title: str, points: list[PrevalencePoint]) -> str:
    drawn = _spread(points)
    values = [(point.real, point.synthetic, point.code) for point in drawn]
    label = f"{title}: share of real records against share of synthetic records, {len(drawn)} codes"
    picture = svg.scatter(values, label, "share of real records", "share of synthetic records", log=True)
    caption = f"<b>{title}.</b> Each dot is one of {len(points):,} codes; on the line it is as common as in reality."
    if len(drawn) < len(points):
        caption += f" To keep the page small, {len(drawn):,} of them are drawn, evenly from common to rare."
    return _figure(_legend({"synthetic": "a code", "zero": "no synthetic record has it"}, "dots") + picture, caption)


def _spread(points: list[PrevalencePoint]) -> list[PrevalencePoint]:
    """All points, or as many as there may be dots, evenly from common to rare codes."""
    if len(points) <= MOST_DOTS:
        return points
    common_first = sorted(points, key=lambda point: -point.real)
    return [common_first[i * len(points) // MOST_DOTS] for i in range(MOST_DOTS)]


def utility(report: Report) -> str:
    """AUROC and AUPRC of both classifiers for each label."""
    drawn = []
    for name, title in (("auroc", "ROC"), ("auprc", "precision-recall")):
        rows = []
        for metric in report.utility.metrics.values():
            marks = [*_mark("real", metric.figures["real"]), *_mark("synthetic", metric.figures["value"])]
            if metric.name == name and marks:
                rows.append((metric.label or "", marks))
        if rows:
            low = 0.5 if name == "auroc" and all(mark.low >= 0.5 for _, marks in rows for mark in marks) else 0.0
            picture = svg.intervals(
                rows, f"Area under the {title} curve by disease", f"area under the {title} curve", low, 1.0
            )
            legend = _legend({"real": "trained on real", "synthetic": "on synthetic"}, "dots")
            drawn.append(_figure(legend + picture, f"<b>Area under the {title} curve</b> on real test records."))
    return _all(drawn)


def attacks(report: Report, family: str) -> str:
    """Attack beside control for each attack."""
    told = getattr(report, family)
    rows = []
    for name, metric in told.metrics.items():
        marks = _attack_marks(metric.figures)
        if marks:
            rows.append((ATTACKS.get(name, name), marks))
    if not rows:
        return ""
    high = max(mark.high for _, marks in rows for mark in marks)
    names = {"synthetic": "attack on this cohort", "real": "control: records of other people", "other": "guessing"}
    picture = svg.bars(
        rows, "Success of each attack beside its control", "success of the attack", min(1.0, high * 1.05)
    )
    return _all([_figure(_legend(names) + picture, ATTACKS_CAPTION)])


def guided(report: Report) -> str:
    """How common codes are in reality, without and with the condition."""
    drawn = []
    for title, caption, asked in (
        ("Codes asked for", "<b>Codes asked for</b>, among all real records, without and with the condition.", True),
        (
            "Codes that come with them",
            "<b>Codes that set such patients apart</b>, real ones meeting the condition.",
            False,
        ),
    ):
        rows = [(_named(bar), _guided_marks(bar)) for bar in report.pictures.guided if bar.asked is asked]
        if rows:
            high = max(mark.value for _, marks in rows for mark in marks)
            picture = svg.bars(rows, title, "share of records", min(1.0, max(high, 0.001) * 1.05), as_percent=True)
            names = {"real": "real", "other": "unconditional synthetic", "synthetic": "this cohort"}
            drawn.append(_figure(_legend(names) + picture, caption))
    return _all(drawn)


def _attack_marks(figures: Figures) -> list[Mark]:
    kinds = (("synthetic", "attack"), ("real", "control"), ("other", "baseline"))
    return [mark for kind, role in kinds for mark in _mark(kind, figures[role])]


def _guided_marks(bar: GuidedBar) -> list[Mark]:
    values = (("real", bar.real), ("other", bar.unconditional), ("synthetic", bar.guided))
    return [Mark(kind, value, value, value) for kind, value in values if value is not None]


def _mark(kind: str, figure: Figure) -> list[Mark]:
    if figure.value is None or figure.low is None or figure.high is None:
        return []
    return [Mark(kind, figure.value, figure.low, figure.high)]


def _named(bar: GuidedBar) -> str:
    return f"{bar.code} {bar.description or ''}".strip()


def _legend(names: dict[str, str], shape: str = "") -> str:
    """What each kind of mark means; the swatches look like the marks without their colour too."""
    items = "".join(f'<li class="{kind}">{name}</li>' for kind, name in names.items())
    return f'<ul class="legend {shape}">{items}</ul>'


def _figure(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"


def _all(figures: list[str]) -> str:
    return f'<div class="figures">{"".join(figures)}</div>' if figures else ""
