"""The parts of the page, in reading order: what it means, then pictures, then tables."""

from collections.abc import Iterator

from app.report_page import pictures, tables
from app.report_page.text import escape, number, verdict_box
from ehr.reports import FamilyReport, Report

TITLES = {
    "fidelity": "Fidelity: is it like real data?",
    "utility": "Utility: can one learn from it?",
    "conditional": "Condition: is it what was asked for?",
    "privacy": "Privacy: does it betray anyone?",
    "slice_privacy": "Privacy of patients with the condition",
}


def sections(report: Report) -> Iterator[str]:
    """Everything between <main> and </main>."""
    yield _header(report)
    yield _summary(report)
    if report.conditional is not None:
        yield _family(report, "conditional", pictures.guided(report) + tables.guided(report.pictures))
    yield _family(report, "privacy", pictures.attacks(report, "privacy"))
    if report.slice_privacy is not None:
        yield _family(report, "slice_privacy", pictures.attacks(report, "slice_privacy"))
    yield _family(report, "fidelity", pictures.fidelity(report) + tables.sizes(report.pictures))
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
        heading = f"<h2>{escape(_short_title(name))}</h2>"
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
    parts += [drawn, tables.metrics(name, _short_title(name), family)]
    return "\n".join(parts)


def _short_title(name: str) -> str:
    return TITLES[name].split(":")[0]


def _drill_down(report: Report) -> str:
    found = report.drill_down
    parts = ["<h2>Code by code</h2>"]
    if not (found.chapters or found.missing):
        return "\n".join([*parts, "<p>Too few real patients to show anything code by code.</p>"])
    hidden = report.pictures.codes_not_shown
    parts.append(
        f"<p>{number(hidden)} codes are not shown, because 1 to 10 real patients have them (or are without them).</p>"
    )
    parts.append(tables.groups("chapters", "Codes per 100 records, by chapter", found.chapters))
    if found.categories:
        caption = "Codes per 100 records, by category: those that differ most"
        parts.append(tables.groups("categories", caption, found.categories))
    if found.most_off:
        parts.append(tables.codes("most_off", "The twenty codes that are off the most", found.most_off))
    if found.missing:
        shown = len(found.missing)
        which = "all of them" if shown == found.missing_total else f"{shown} of {found.missing_total:,}"
        caption = f"Codes of training records that no synthetic record has ({which})"
        parts.append(tables.codes("missing", caption, found.missing))
    return "\n".join(parts)


def _augmentation(report: Report) -> str:
    if not report.augmentation:
        return ""
    intro = (
        "A classifier trained on a few real records alone, and with records of each kind added to them, tested on real "
        "test records."
    )
    return f"<h3>Adding records to a few real ones</h3><p>{intro}</p>{tables.augmentation(report)}"


def _footer(report: Report) -> str:
    slowest = sorted(report.seconds.items(), key=lambda item: -item[1])
    times = ", ".join(f"{escape(name)} {seconds:.1f} s" for name, seconds in slowest if seconds >= 0.05)
    return (
        "<h2>How to read this</h2>"
        "<p>Every figure stands beside yardsticks measured in the same way at the same size. <b>Real records</b> "
        "puts training records in the synthetic ones' place: what is left is chance. <b>Independent codes</b> is "
        "what knowing only how common each code is would give, <b>codes written in</b> ordinary synthetic records to "
        "which the asked codes were added. For attacks, <b>control</b> puts other people's real "
        "records in the cohort's place; the risk is the <b>gain</b> of the attack over it. Small figures below a value "
        "are its 95 % interval.</p>"
        f"<p>Small cells: {escape(report.small_cells)}; figures from which one could be worked out are left out or "
        "rounded.</p>"
        f'<p class="soft">Measured in {sum(report.seconds.values()):.0f} s: {times}. Report version '
        f"{report.version}.</p>"
    )
