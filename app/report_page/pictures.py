"""Which pictures a report has, and what they are drawn from."""

from app.report_page import svg
from app.report_page.svg import Mark
from app.report_page.text import number
from model_store.reports import Figure, Figures, GuidedBar, Report

BOTH = '<ul class="legend"><li class="real">real</li><li class="synthetic">synthetic</li></ul>'
RING = '<ul class="legend"><li class="synthetic">a code</li><li class="zero">no synthetic record has it</li></ul>'
ATTACKS = {
    "mir": "Membership, nearly equal records (F1)",
    "mia_tpr_at_fpr": "Membership, careful attacker",
    "air": "Inferring other codes (F1)",
    "dcr": "Closer to training patients",
    "nndr": "Singling out training patients",
    "exact_matches": "Copies (share of records)",
}


def fidelity(report: Report) -> str:
    """Prevalences of all and of rare codes, codes per record, and how codes go together."""
    shown = report.pictures
    drawn = []
    for title, points in (
        ("All codes", shown.prevalence),
        ("Rare codes", [point for point in shown.prevalence if point.rare]),
    ):
        if points:
            values = [(point.real, point.synthetic, point.code) for point in points]
            label = f"{title}: share of real records against share of synthetic records, {len(points)} codes"
            picture = svg.scatter(values, label, "share of real records", "share of synthetic records", log=True)
            caption = (
                f"<b>{title}.</b> Each dot is one of {len(points):,} codes; on the line it is as common as in reality."
            )
            drawn.append(_figure(RING + picture, caption))
    if shown.sizes:
        bins = [(_range(each.first, each.last), each.real, each.synthetic) for each in shown.sizes]
        picture = svg.paired_columns(
            bins, "Share of records by number of codes, real and synthetic", "codes per record"
        )
        caption = "<b>Codes per record.</b> Numbers of codes that few real patients have are put together."
        drawn.append(_figure(BOTH + picture, caption))
    if shown.correlation:
        values = [(point.real, point.synthetic, " with ".join(point.codes)) for point in shown.correlation]
        label = f"Correlation of {len(values)} pairs of common codes, real against synthetic"
        picture = svg.scatter(values, label, "correlation in real records", "in synthetic records")
        drawn.append(
            _figure(
                picture, f"<b>Codes that go together.</b> Each dot is one of {len(values):,} pairs of common codes."
            )
        )
    return _all(drawn)


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
            legend = (
                '<ul class="legend"><li class="real">trained on real</li><li class="synthetic">on synthetic</li></ul>'
            )
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
    legend = (
        '<ul class="legend"><li class="synthetic">attack on this cohort</li>'
        '<li class="real">control: records of other people</li><li class="other">guessing</li></ul>'
    )
    picture = svg.bars(
        rows, "Success of each attack beside its control", "success of the attack", min(1.0, high * 1.05)
    )
    caption = "<b>Attacks.</b> A bar that is longer than its control is what this cohort betrays."
    return _all([_figure(legend + picture, caption)])


def guided(report: Report) -> str:
    """How common codes are in reality, without and with the condition."""
    drawn = []
    for title, caption, bars in (
        ("Codes asked for", "<b>Codes asked for</b>, among all real records, without and with the condition.", True),
        (
            "Codes that come with them",
            "<b>Codes that set such patients apart</b>, real ones meeting the condition.",
            False,
        ),
    ):
        rows = [(_named(bar), _guided_marks(bar)) for bar in report.pictures.guided if bar.asked is bars]
        if rows:
            high = max(mark.value for _, marks in rows for mark in marks)
            picture = svg.bars(rows, title, "share of records", min(1.0, max(high, 0.001) * 1.05), as_percent=True)
            legend = (
                '<ul class="legend"><li class="real">real</li><li class="other">unconditional synthetic</li>'
                '<li class="synthetic">this cohort</li></ul>'
            )
            drawn.append(_figure(legend + picture, caption))
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


def _range(first: int, last: int) -> str:
    return number(first) if first == last else f"{first}\u2013{last}"


def _figure(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"


def _all(figures: list[str]) -> str:
    return f'<div class="figures">{"".join(figures)}</div>' if figures else ""
