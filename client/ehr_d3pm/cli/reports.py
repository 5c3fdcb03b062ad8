"""Reports: measure a cohort, show what was measured."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ehr_d3pm.cli.cohorts import CohortId
from ehr_d3pm.cli.jobs import finish
from ehr_d3pm.cli.output import AsJson, Exit, Wait, client_of, console, fail, print_json, print_table, say

LEVELS = ("good", "caution", "fail")


class Level(StrEnum):
    """Of verdicts, those that can be too bad."""

    CAUTION = "caution"
    FAIL = "fail"


COLORS = {"good": "green", "caution": "yellow", "fail": "bold red"}
ARROWS = {"higher": "\u2191", "lower": "\u2193"}
SMALL = 1e-3  # below, a figure is shown as a power of ten
SYNTHETIC = {"value": "synthetic", "floor": "real records"}
ATTACKS = {"attack": "attack", "control": "control", "baseline": "guessing", "gain": "gain"}
# family -> (title, its columns: role and heading)
FAMILIES: dict[str, tuple[str, dict[str, str]]] = {
    "fidelity": ("fidelity", SYNTHETIC | {"independent": "independent codes"}),
    "plausible": ("plausibility", SYNTHETIC),
    "time": (
        "time",
        {"value": "synthetic", "floor": "real patients", "markov": "last visit only", "shuffled": "visits shuffled"},
    ),
    "conditional": ("condition", SYNTHETIC | {"unconditional": "codes written in"}),
    "utility": ("utility", {"value": "trained on synthetic", "real": "trained on real", "shortfall": "lost"}),
    "privacy": ("privacy", ATTACKS),
    "slice_privacy": ("privacy of its patients", ATTACKS),
}


def report(
    context: typer.Context,
    cohort: CohortId,
    html: Annotated[Path | None, typer.Option(help="write an HTML page to this file instead")] = None,
    shareable: Annotated[bool, typer.Option("--shareable", help="the report that may be passed on")] = False,
    fail_on: Annotated[Level | None, typer.Option(help="end with exit code 6 if the verdict is this or worse")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the report on a cohort. Beside real records only with a key that has the scope data."""
    reader = "shareable" if shareable else None
    with client_of(context) as client:
        if html is not None:
            html.write_text(client.report_page(cohort, reader), encoding="utf-8")
            say(str(html))
            if fail_on is None:
                return
        body = client.report(cohort, reader)
    if as_json:
        print_json(body)
    elif html is None:
        show_report(body)
        hint = "writes a page with pictures and how each figure was measured."
        say(f"\n'ehr-d3pm report {cohort} --html report.html' {hint}")
    level = body["verdict"]["level"]
    if fail_on is not None and LEVELS.index(level) >= LEVELS.index(fail_on):
        fail(f"the verdict is {level}", Exit.NOT_GOOD_ENOUGH)


def evaluate(
    context: typer.Context,
    cohort: CohortId,
    dataset: Annotated[str | None, typer.Option(help="id of another dataset to compare with")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="CODE", help="code to predict; repeatable")] = None,
    seed: int = 0,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Evaluate a finished cohort again, or against another dataset."""
    with client_of(context) as client:
        finish(client, client.evaluate(cohort, dataset_id=dataset, labels=label, seed=seed), wait, as_json)


def show_report(body: dict[str, Any]) -> None:
    """The verdicts, and the key figures each beside its yardsticks."""
    _show_verdict("", body["verdict"])
    if body.get("reader") == "shareable":
        _show_shareable(body)
        return
    console.print(f"({ARROWS['higher']} higher is better, {ARROWS['lower']} lower is better)", highlight=False)
    for family, (title, columns) in FAMILIES.items():
        if body.get(family) is not None:
            _show_family(title, columns, body[family])
    for code in _codes_in(body):
        say(f"{code}: {body['names'][code]}")


def _codes_in(body: dict[str, Any]) -> list[str]:
    """Codes that the tables and the condition speak of, of which the report knows what they are called."""
    asked, names = body.get("condition") or {}, body.get("names") or {}
    codes = [*asked.get("all_of", []), *(code for group in asked.get("any_of", []) for code in group)]
    codes += [*asked.get("none_of", []), *(code for target in body["targets"] for code in target["codes"])]
    codes += [metric["label"] for metric in body["utility"]["metrics"].values()]
    return [code for code in dict.fromkeys(codes) if code in names]


def _show_shareable(body: dict[str, Any]) -> None:
    """What is known about the model, and what the cohort's own records say."""
    model, synthetic = body["model"], body["synthetic"]
    judged = {"model: privacy audit": model["audit"], "model: rare conditions": model["rare_conditions"]}
    judged |= {f"model: {FAMILIES.get(name, (name,))[0]}": verdict for name, verdict in model["families"].items()}
    for title, verdict in judged.items():
        if verdict is not None:
            _show_verdict(title, verdict)
    rows = [
        [f"{name} {ARROWS[metric['direction']]}", _figure(metric["figures"].get("value")), _level(metric)]
        for name, metric in synthetic["metrics"].items()
    ]
    rows += [["codes per record", f"{synthetic['codes_per_record']:.4g}", ""]]
    rows += [["codes in the cohort", f"{synthetic['codes_present']:,} of {body['codes']:,}", ""]]
    print_table(["cohort", "synthetic", ""], rows, right=(1,), lines=False)
    console.print(body["left_out"], highlight=False)


def _level(metric: dict[str, Any]) -> str:
    return str((metric["verdict"] or {}).get("level", "-"))


def _show_family(title: str, columns: dict[str, str], measured: dict[str, Any]) -> None:
    if measured["absent"] is not None:
        console.print(f"\nNo figures for {title}: {measured['absent']}.", highlight=False)
    rows = []
    for name, metric in measured["metrics"].items():
        cells = [_figure(metric["figures"].get(role)) for role in columns]
        rows.append([f"{name} {ARROWS[metric['direction']]}", *cells, _level(metric)])
    if rows:
        print_table([title, *columns.values(), ""], rows, right=tuple(range(1, 1 + len(columns))))
    if measured["verdict"] is not None:
        _show_verdict(title, measured["verdict"])


def _show_verdict(title: str, verdict: dict[str, str]) -> None:
    level = verdict["level"]
    label = f"{title}: {level}" if title else level.upper()
    words = f". {verdict['reason']} {verdict['advice']}".rstrip()
    console.print(Text.assemble((label, COLORS[level]), words), highlight=False)


def _figure(measurement: dict[str, Any] | None) -> str:
    value = None if measurement is None else measurement.get("value")
    if value is None:
        return "-"
    return f"{value:.2g}" if 0 < abs(value) < SMALL else f"{value:.4g}"
