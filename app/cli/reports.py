"""Commands for reports, and for cohorts that a report withholds."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from app.cli.output import AsJson, Wait, console, print_json, print_table
from app.cli.work import JobId, client_of, finish

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
            console.print(str(html), highlight=False, soft_wrap=True)
            return
        body = client.report(job_id)
    if as_json:
        print_json(body)
    else:
        show_report(body)
        hint = "writes a page: pictures, and how each figure was measured."
        console.print(f"\n'ehr-d3pm report {job_id} --html report.html' {hint}", highlight=False, soft_wrap=True)


def evaluate(
    context: typer.Context,
    cohort: Annotated[str, typer.Argument(help="id of a generate job")],
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


def release(
    context: typer.Context,
    cohort: Annotated[str, typer.Argument(help="id of a generate job")],
    reason: Annotated[str, typer.Option(help="why it may leave all the same; kept in the audit trail")],
    as_json: AsJson = False,
) -> None:
    """Let a cohort go that its report withholds (needs the scope admin)."""
    with client_of(context) as client:
        released = client.release(cohort, reason)
    if as_json:
        print_json(released)
    else:
        console.print(f"cohort {cohort} is released", highlight=False, soft_wrap=True)


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
        print_table("", [title, *columns.values(), ""], rows, right=tuple(range(1, 1 + len(columns))))
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
