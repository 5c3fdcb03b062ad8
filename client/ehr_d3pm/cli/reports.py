"""Reports: measure a cohort, show what was measured."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ehr_d3pm.cli.cohorts import CohortId
from ehr_d3pm.cli.jobs import JobId, finish
from ehr_d3pm.cli.output import AsJson, Wait, client_of, console, print_json, print_table, say

COLORS = {"good": "green", "caution": "yellow", "fail": "bold red"}
ARROWS = {"higher": "\u2191", "lower": "\u2193"}
SMALL = 1e-3  # below, a figure is told as a power of ten
# family -> (title, its columns: role and heading)
FAMILIES: dict[str, tuple[str, dict[str, str]]] = {
    "fidelity": (
        "fidelity",
        {"value": "synthetic", "floor": "real records", "independent": "independent codes"},
    ),
    "conditional": (
        "condition",
        {"value": "synthetic", "floor": "real records", "unconditional": "codes written in"},
    ),
    "utility": ("utility", {"value": "trained on synthetic", "real": "trained on real", "shortfall": "lost"}),
    "privacy": ("privacy", {"attack": "attack", "control": "control", "baseline": "guessing", "gain": "gain"}),
    "slice_privacy": (
        "privacy of its patients",
        {"attack": "attack", "control": "control", "baseline": "guessing", "gain": "gain"},
    ),
}


def report(
    context: typer.Context,
    job_id: JobId,
    html: Annotated[Path | None, typer.Option(help="write a page instead of showing tables")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the report on a cohort."""
    with client_of(context) as client:
        if html is not None:
            html.write_text(client.report_page(job_id), encoding="utf-8")
            say(str(html))
            return
        body = client.report(job_id)
    if as_json:
        print_json(body)
    else:
        show_report(body)
        hint = "writes a page: pictures, and how each figure was measured."
        say(f"\n'ehr-d3pm report {job_id} --html report.html' {hint}")


def evaluate(
    context: typer.Context,
    cohort: CohortId,
    dataset: Annotated[str | None, typer.Option(help="other real records to compare with")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="to predict; may be given more than once")
    ] = None,
    seed: int = 0,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Measure a finished cohort, again or against another data set."""
    with client_of(context) as client:
        finish(client, client.evaluate(cohort, dataset_id=dataset, labels=label, seed=seed), wait, as_json)


def show_report(body: dict[str, Any]) -> None:
    """The verdicts, and the key figures each beside its yardsticks."""
    _show_verdict("", body["verdict"])
    console.print(f"({ARROWS['higher']} higher is better, {ARROWS['lower']} lower is better)", highlight=False)
    for family, (title, columns) in FAMILIES.items():
        told = body.get(family)
        if told is not None:
            _show_family(title, columns, told)


def _show_family(title: str, columns: dict[str, str], told: dict[str, Any]) -> None:
    if told["absent"] is not None:
        console.print(f"\nNo figures of {title}: {told['absent']}.", highlight=False)
    rows = []
    for name, metric in told["metrics"].items():
        cells = [_figure(metric["figures"].get(role)) for role in columns]
        rows.append([f"{name} {ARROWS[metric['direction']]}", *cells, (metric["verdict"] or {}).get("level", "-")])
    if rows:
        print_table([title, *columns.values(), ""], rows, right=tuple(range(1, 1 + len(columns))))
    if told["verdict"] is not None:
        _show_verdict(title, told["verdict"])


def _show_verdict(title: str, verdict: dict[str, str]) -> None:
    level = verdict["level"]
    label = f"{title}: {level}" if title else level.upper()
    words = f". {verdict['reason']} {verdict['advice']}".rstrip()
    console.print(Text.assemble((label, COLORS[level]), words), highlight=False)


def _figure(measurement: dict[str, Any] | None) -> str:
    if measurement is None:
        return "-"
    value = measurement.get("value")
    if value is None:
        return "-"
    return f"{value:.2g}" if 0 < abs(value) < SMALL else f"{value:.4g}"
