"""The parts of the page, in reading order: what it means, then pictures, then tables."""

from collections.abc import Iterator

from app.report_page import pictures
from app.report_page.text import (
    data,
    escape,
    figure_cell,
    level_cell,
    number,
    number_cell,
    percent,
    row_head,
    table,
    verdict_box,
)
from model_store.reports import CodeRow, FamilyReport, GroupRow, Report

TITLES = {
    "fidelity": "Fidelity: is it like real data?",
    "utility": "Utility: can one learn from it?",
    "conditional": "Condition: is it what was asked for?",
    "privacy": "Privacy: does it betray anyone?",
    "slice_privacy": "Privacy of patients with the condition",
}
COLUMNS = {
    "fidelity": {"value": "synthetic", "floor": "best possible", "independent": "independent codes"},
    "utility": {"value": "trained on synthetic", "real": "trained on real", "shortfall": "lost"},
    "conditional": {"value": "synthetic", "floor": "best possible", "unconditional": "unconditional, codes written in"},
    "privacy": {"attack": "attack", "control": "control", "baseline": "guessing", "gain": "gain over control"},
}
METRICS = {
    "prevalence_spearman": "Order of codes, common to rare",
    "prevalence_spearman_rare": "The same among rare codes",
    "codes_missing": "Codes missing",
    "cmd": "Links between codes",
    "mmd": "Whole records",
    "mcad": "Codes per record",
    "held_out_elbo": "Surprise at unseen records",
    "auroc": "Ranking patients by risk (AUROC)",
    "auprc": "Pointing out patients (AUPRC)",
    "attainment": "Records that meet the condition",
    "slice_prevalence_l1": "Frequencies of other codes",
    "slice_cmd": "Links between codes",
    "slice_mcad": "Codes per record",
    "ess": "Effective sample size",
    "mir": "Membership, by nearly equal records",
    "mia_tpr_at_fpr": "Membership, careful attacker",
    "air": "Inferring other codes",
    "dcr": "Closer to training patients",
    "nndr": "Singling out training patients",
    "exact_matches": "Copies",
}

FACTS = {
    "known": "codes the attacker knows",
    "identical_to_train": "synthetic records identical to any training record",
    "identical_to_holdout": "to any holdout record",
    "median_to_train": "median to training records",
    "median_to_holdout": "to holdout records",
    "median_control_to_train": "control to training records",
}


def sections(report: Report) -> Iterator[str]:
    """Everything between <main> and </main>."""
    yield _header(report)
    yield _summary(report)
    if report.conditional is not None:
        yield _family(report, "conditional", pictures.guided(report))
    yield _family(report, "privacy", pictures.attacks(report, "privacy"))
    if report.slice_privacy is not None:
        yield _family(report, "slice_privacy", pictures.attacks(report, "slice_privacy"))
    yield _family(report, "fidelity", pictures.fidelity(report))
    yield _drill_down(report)
    yield _family(report, "utility", pictures.utility(report))
    yield _augmentation(report)
    yield _footer(report)


def _header(report: Report) -> str:
    facts = {
        "Synthetic records": f"{report.records:,}",
        "Codes": f"{report.codes:,}",
        "Model": report.model_id,
        "Compared with": report.dataset_id + ("" if report.own_data else " (not the model's own data)"),
        "Report": report.job_id,
    }
    if report.codes_left_out:
        facts["Codes the data set lacks"] = f"{report.codes_left_out:,} left out"
    if report.condition is not None:
        facts["Asked for"] = _condition(report)
        support = report.condition.support_in_training
        facts["Such training records"] = "too few to show" if support is None else f"about {support:,}"
    for target in report.targets:
        facts[f"Share with {' or '.join(target.codes)}"] = f"{target.attained:.1%} ({target.asked:.1%} asked for)"
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    cohort = f'<p class="soft"><code>{escape(report.cohort_id)}</code></p>'
    return f'<h1>Report on a synthetic cohort</h1>{cohort}<dl class="facts">{items}</dl>'


def _condition(report: Report) -> str:
    asked = report.condition
    if asked is None:
        return ""
    parts = [*asked.all_of, *(" or ".join(group) for group in asked.any_of), *(f"not {code}" for code in asked.none_of)]
    return "; ".join(parts)


def _summary(report: Report) -> str:
    cards = []
    for name, family in report.families.items():
        heading = f"<h2>{escape(TITLES[name].split(':')[0])}</h2>"
        if family.verdict is not None:
            cards.append(verdict_box(family.verdict, heading))
        else:
            why = escape(family.absent or "nothing was measured")
            cards.append(f'<div class="verdict">{heading}<p>Not judged: {why}.</p></div>')
    return f'{verdict_box(report.verdict, extra="overall")}<div class="cards">{"".join(cards)}</div>'


def _family(report: Report, name: str, drawn: str) -> str:
    family: FamilyReport = getattr(report, name)
    parts = [f"<h2>{escape(TITLES[name])}</h2>", f'<p class="soft">Compared with {escape(family.against)}.</p>']
    if family.absent is not None:
        parts.append(f"<p>Not measured: {escape(family.absent)}.</p>")
    parts += [drawn, _metrics(name, family)]
    return "\n".join(parts)


def _metrics(name: str, family: FamilyReport) -> str:
    if not family.metrics:
        return ""
    columns = COLUMNS["privacy" if name == "slice_privacy" else name]
    rows = []
    for key, metric in family.metrics.items():
        better = "higher is better" if metric.direction == "higher" else "lower is better"
        title = METRICS.get(metric.name, metric.name) + (f": {metric.label}" if metric.label else "")
        reasons = {figure.absent for figure in metric.figures.values() if figure.absent}
        below = f"{metric.meaning} {metric.name}, {better}. {' '.join(f'Not measured: {r}.' for r in sorted(reasons))}"
        path = f"{name}.metrics.{key}.figures"
        cells = "".join(figure_cell(f"{path}.{role}", metric.figures.get(role)) for role in columns)
        facts = _facts(f"{name}.metrics.{key}.facts", metric.facts)
        rows.append(row_head(title, below.strip(), facts) + cells + level_cell(metric.verdict))
        for variant, figures in metric.variants.items():
            path = f"{name}.metrics.{key}.variants.{variant}"
            cells = "".join(figure_cell(f"{path}.{role}", figures.get(role)) for role in columns)
            rows.append(row_head(f"\u2026 {variant}") + cells + "<td></td>")
    head = [("metric", False), *((heading, True) for heading in columns.values()), ("verdict", False)]
    return table(f"{TITLES[name].split(':')[0]}: every metric with its 95 % interval and yardsticks", head, rows)


def _facts(path: str, facts: dict[str, float]) -> str:
    told = (f"{escape(FACTS.get(fact, fact))}: {data(f'{path}.{fact}', value)}" for fact, value in facts.items())
    return "; ".join(told)


def _drill_down(report: Report) -> str:
    found = report.drill_down
    parts = ["<h2>Code by code</h2>"]
    if not (found.chapters or found.missing):
        return "\n".join([*parts, "<p>Too few real patients to show anything code by code.</p>"])
    hidden = report.pictures.codes_not_shown
    parts.append(
        f"<p>{number(hidden)} codes are not shown, because 1 to 10 real patients have them (or are without them).</p>"
    )
    parts.append(_groups("chapters", "Codes per 100 records, by chapter", found.chapters))
    if found.categories:
        parts.append(
            _groups("categories", "Codes per 100 records, by category: those that differ most", found.categories)
        )
    if found.most_off:
        parts.append(_codes("most_off", "The twenty codes that are off the most", found.most_off))
    if found.missing:
        shown = len(found.missing)
        which = "all of them" if shown == found.missing_total else f"{shown} of {found.missing_total:,}"
        parts.append(
            _codes("missing", f"Codes of training records that no synthetic record has ({which})", found.missing)
        )
    return "\n".join(parts)


def _groups(name: str, caption: str, groups: list[GroupRow]) -> str:
    rows = [
        row_head(group.name, group.description or "")
        + number_cell(str(group.codes))
        + number_cell(data(f"drill_down.{name}.{i}.real", group.real))
        + number_cell(data(f"drill_down.{name}.{i}.synthetic", group.synthetic))
        for i, group in enumerate(groups)
    ]
    return table(caption, [("group", False), ("codes shown", True), ("real", True), ("synthetic", True)], rows)


def _codes(name: str, caption: str, codes: list[CodeRow]) -> str:
    rows = []
    for i, code in enumerate(codes):
        path = f"drill_down.{name}.{i}"
        real = data(f"{path}.real", code.real, None if code.real is None else percent(code.real))
        synthetic = data(f"{path}.synthetic", code.synthetic, percent(code.synthetic))
        rows.append(
            row_head(code.code)
            + f"<td>{escape(code.description or '')}</td>"
            + number_cell(real)
            + number_cell(synthetic)
        )
    return table(caption, [("code", False), ("description", False), ("real", True), ("synthetic", True)], rows)


def _augmentation(report: Report) -> str:
    if not report.augmentation:
        return ""
    rows = []
    for i, result in enumerate(report.augmentation):
        for arm, areas in result.arms.items():
            path = f"augmentation.{i}.arms.{arm}"
            cells = "".join(figure_cell(f"{path}.{name}", areas.get(name)) for name in ("auroc", "auprc"))
            rows.append(row_head(result.label, arm) + cells)
    intro = "<p>A classifier trained on 5,000 real records alone, and with 5,000 records of each kind added.</p>"
    head = [("predicted", False), ("AUROC", True), ("AUPRC", True)]
    return f"<h3>Adding synthetic records to real ones</h3>{intro}" + table("Augmentation", head, rows)


def _footer(report: Report) -> str:
    slowest = sorted(report.seconds.items(), key=lambda item: -item[1])
    times = ", ".join(f"{escape(name)} {seconds:.1f} s" for name, seconds in slowest if seconds >= 0.05)
    return (
        "<h2>How to read this</h2>"
        "<p>Every figure stands beside yardsticks measured in the same way at the same size. <b>Best possible</b> is "
        "real "
        "records in the synthetic ones' place: no generator can beat sampling noise. <b>Independent codes</b> is what "
        "knowing only how common each code is would give. For attacks, <b>control</b> puts other people's real records "
        "in the cohort's place; the risk is the <b>gain</b> of the attack over it. Small figures below a value are "
        "its 95 % "
        f"interval.</p><p>Small cells: {escape(report.small_cells)}; figures from which one could be worked out are "
        f"left "
        f'out or rounded.</p><p class="soft">Measured in {sum(report.seconds.values()):.0f} s: {times}. Report version '
        f"{report.version}.</p>"
    )
