"""The tables of the page: every metric, and the figures of the pictures."""

from collections.abc import Iterator

from app.report_page.notes import Row, notes
from app.report_page.text import (
    data,
    escape,
    figure_cell,
    folded,
    level_cell,
    number_cell,
    row_head,
    share_cell,
    span,
    table,
)
from ehr.reports import AugmentationReport, CodeRow, FamilyReport, GroupRow, Pictures, Report

COLUMNS = {
    "fidelity": {"value": "synthetic", "floor": "real records", "independent": "independent codes"},
    "utility": {"value": "trained on synthetic", "real": "trained on real", "shortfall": "lost"},
    "conditional": {
        "value": "synthetic",
        "floor": "real records",
        "unconditional": "codes written in",
    },
    "privacy": {"attack": "attack", "control": "control", "baseline": "guessing", "gain": "gain over control"},
}
METRICS = {
    "prevalence_spearman": "Order of codes, common to rare",
    "prevalence_spearman_rare": "The same among rare codes",
    "codes_missing": "Codes missing",
    "cmd": "Links between codes",
    "mmd": "Whole records",
    "mcad": "Codes per record",
    "held_out_elbo": "Surprise at unseen records (nats)",
    "auroc": "Ranking patients by risk (AUROC)",
    "auprc": "Pointing out patients (AUPRC)",
    "attainment": "Records that meet the condition",
    "slice_prevalence_l1": "Frequencies of other codes",
    "slice_cmd": "Links between codes",
    "slice_mcad": "Codes per record",
    "ess": "Records it is worth, by weight",
    "mir": "Membership, by nearly equal records (F1)",
    "mia_tpr_at_fpr": "Membership, careful attacker",
    "air": "Inferring other codes (F1)",
    "dcr": "Closer to training patients",
    "nndr": "Singling out training patients",
    "exact_matches": "Copies",
}
FACTS = {
    "known": "codes the attacker knows",
    "identical_to_train": "synthetic records identical to any training record",
    "identical_to_holdout": "to any record held back from training",
    "median_to_train": "median for training records",
    "median_to_holdout": "for records held back from training",
    "median_control_to_train": "for training records with the control",
}
AREAS = {"auroc": "AUROC", "auprc": "AUPRC"}


def metrics(name: str, title: str, family: FamilyReport) -> str:
    """Every metric of a family beside its yardsticks, and how it was measured."""
    if not family.metrics:
        return ""
    columns = COLUMNS["privacy" if name == "slice_privacy" else name]
    rows = []
    for key, metric in family.metrics.items():
        better = "Higher is better" if metric.direction == "higher" else "Lower is better"
        metric_title = METRICS.get(metric.name, metric.title or metric.name)
        metric_title += f": {metric.label}" if metric.label else ""
        reasons = {figure.absent for figure in metric.figures.values() if figure.absent}
        unmeasured = " ".join(f"Not measured: {reason}." for reason in sorted(reasons))
        below = f"{metric.meaning} {better} (in the JSON: {metric.name}). {unmeasured}"
        path = f"{name}.metrics.{key}.figures"
        cells = "".join(figure_cell(f"{path}.{role}", metric.figures.get(role)) for role in columns)
        facts = _facts(f"{name}.metrics.{key}.facts", metric.facts)
        rows.append(row_head(metric_title, below.strip(), facts) + cells + level_cell(metric.verdict))
        for variant, figures in metric.variants.items():
            path = f"{name}.metrics.{key}.variants.{variant}"
            cells = "".join(figure_cell(f"{path}.{role}", figures.get(role)) for role in columns)
            rows.append(row_head(f"\u2026 {variant}") + cells + "<td></td>")
    head = [("metric", False), *((heading, True) for heading in columns.values()), ("verdict", False)]
    caption = f"{title}: every metric with its 95 % interval and yardsticks"
    return f'<div class="metrics">{table(caption, head, rows)}</div>{notes(_noted(family), columns)}'


def _noted(family: FamilyReport) -> Iterator[Row]:
    for metric in family.metrics.values():
        for figures in (metric.figures, *metric.variants.values()):
            yield METRICS.get(metric.name, metric.title or metric.name), metric.label or "", figures


def _facts(path: str, facts: dict[str, float]) -> str:
    told = (f"{escape(FACTS.get(fact, fact))}: {data(f'{path}.{fact}', value)}" for fact, value in facts.items())
    return "; ".join(told)


def sizes(pictures: Pictures) -> str:
    """The figures of the picture of codes per record."""
    if not pictures.sizes:
        return ""
    rows = [
        row_head(span(each.first, each.last))
        + share_cell(f"pictures.sizes.{i}.real", each.real)
        + share_cell(f"pictures.sizes.{i}.synthetic", each.synthetic)
        for i, each in enumerate(pictures.sizes)
    ]
    caption = "Share of records by number of codes"
    head = [("codes per record", False), ("real", True), ("synthetic", True)]
    return folded(f"{caption}: the figures of the picture", table(caption, head, rows))


def guided(pictures: Pictures) -> str:
    """The figures of the pictures of a conditioned cohort."""
    head = [("code", False), ("real", True), ("unconditional", True), ("this cohort", True)]
    drawn = []
    for asked, caption in (
        (True, "Codes asked for: share of all real records, and of synthetic ones without and with the condition"),
        (False, "Codes that set such patients apart: share of real records that meet the condition, and of synthetic"),
    ):
        rows = [
            row_head(bar.code, bar.description or "")
            + share_cell(f"pictures.guided.{i}.real", bar.real)
            + share_cell(f"pictures.guided.{i}.unconditional", bar.unconditional)
            + share_cell(f"pictures.guided.{i}.guided", bar.guided)
            for i, bar in enumerate(pictures.guided)
            if bar.asked is asked
        ]
        if rows:
            drawn.append(table(caption, head, rows))
    return "".join(drawn)


def groups(name: str, caption: str, found: list[GroupRow]) -> str:
    """Chapters or categories."""
    rows = [
        row_head(group.name, group.description or "")
        + number_cell(f"{group.codes:,}")
        + number_cell(data(f"drill_down.{name}.{i}.real", group.real))
        + number_cell(data(f"drill_down.{name}.{i}.synthetic", group.synthetic))
        for i, group in enumerate(found)
    ]
    return table(caption, [("group", False), ("codes shown", True), ("real", True), ("synthetic", True)], rows)


def codes(name: str, caption: str, found: list[CodeRow]) -> str:
    """Single codes."""
    rows = [
        row_head(code.code, code.description or "")
        + share_cell(f"drill_down.{name}.{i}.real", code.real)
        + share_cell(f"drill_down.{name}.{i}.synthetic", code.synthetic)
        for i, code in enumerate(found)
    ]
    return table(caption, [("code", False), ("real", True), ("synthetic", True)], rows)


def augmentation(report: Report) -> str:
    """What was measured of adding records to real ones, and below what was not."""
    rows: list[str] = []
    missing: dict[str, None] = {}  # a dictionary keeps the order
    for i, result in enumerate(report.augmentation):
        for arm, areas in result.arms.items():
            reasons = [figure.absent for figure in areas.values() if figure.absent is not None]
            if len(reasons) == len(areas):
                missing[f"{arm} ({reasons[0]})" if reasons else arm] = None
                continue
            path = f"augmentation.{i}.arms.{arm}"
            cells = "".join(figure_cell(f"{path}.{name}", areas.get(name)) for name in AREAS)
            rows.append(row_head(result.label, arm, _records(i, arm, result)) + cells)
    head = [("predicted", False), *((heading, True) for heading in AREAS.values())]
    absent = f"<p>Not measured: {escape('; '.join(missing))}.</p>" if missing else ""
    every_arm = [
        (heading, result.label, {arm: areas[name] for arm, areas in result.arms.items() if name in areas})
        for result in report.augmentation
        for name, heading in AREAS.items()
    ]
    arms = {arm: arm for result in report.augmentation for arm in result.arms}
    return table("Augmentation", head, rows) + absent + notes(every_arm, arms)


def _records(i: int, arm: str, result: AugmentationReport) -> str:
    """How many real records an arm has, and how many were added; nothing for reports that do not tell."""
    if result.real_records is None:
        return ""
    told = f"{data(f'augmentation.{i}.real_records', result.real_records)} real records"
    added = result.added.get(arm)
    return told if added is None else f"{told}, {data(f'augmentation.{i}.added.{arm}', added)} added"
