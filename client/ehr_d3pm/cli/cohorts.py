"""Cohorts: estimate, generate, download, release, and what became of them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ehr_d3pm.cli.collections import cell, collection
from ehr_d3pm.cli.conditions import Asked, takes_conditions
from ehr_d3pm.cli.ids import id_argument, short
from ehr_d3pm.cli.jobs import finish
from ehr_d3pm.cli.output import (
    AsJson,
    Exit,
    Limit,
    Wait,
    client_of,
    errors_as_exit_codes,
    fail,
    print_json,
    print_table,
    say,
    warn,
)
from ehr_d3pm.client import Client

SAID_IN_WORDS = ("before", "at_visit", "visits", "days", "prompt")  # parts of a history
FAIL_ON = "end with exit code 6 if no record of the model's own is like it (unseen), or if it would wait (withheld)"


class Doubt(StrEnum):
    """What makes an estimate a failure, for scripts."""

    UNSEEN = "unseen"
    WITHHELD = "withheld"


ModelId = Annotated[str, id_argument("id of a model, or its beginning")]
CohortId = Annotated[str, id_argument("id of a cohort (that of its generate job), or its beginning")]


def _condition(cohort: dict[str, Any]) -> str:
    """`E11 or E84, not O*, N18=0.2`: what was asked for."""
    request = cohort["manifest"].get("request", {})
    asked = request.get("conditions") or {}
    words = [*asked.get("all_of", []), *(" or ".join(group) for group in asked.get("any_of", []))]
    words += [f"not {code}" for code in asked.get("none_of", [])]
    words += [f"{' or '.join(target['codes'])}={target['share']:g}" for target in request.get("targets") or []]
    words += _over_time(request.get("history") or {})
    return ", ".join(words)


def _over_time(history: dict[str, Any]) -> list[str]:
    """What patients over time were asked to be, in few words."""
    words = [f"ever {code}" for code in history.get("ever", [])]
    words += [f"never {code}" for code in history.get("never", [])]
    words += [f"{order['first']} before {order['then']}" for order in history.get("before", [])]
    words += [f"something at visit {each['visit']}" for each in history.get("at_visit", [])]
    least, most = history.get("fewest_visits", 1), history.get("most_visits")
    words += [f"{least} to {most or 'any'} visits"] if (least, most) != (1, None) else []
    least, most = history.get("shortest_days", 0), history.get("longest_days")
    words += [f"{least} to {most or 'any'} days"] if (least, most) != (0, None) else []
    start = history.get("start") or {}
    words += [*start.get("all_of", []), *(" or ".join(group) for group in start.get("any_of", []))]
    words += [f"not {code}" for code in start.get("none_of", [])]
    return [*words, *([f"after {len(given)} given visits"] if (given := history.get("prompt")) else [])]


cli = collection(
    "cohorts",
    Client.cohorts,
    Client.cohort,
    {
        "cohort": lambda cohort: short(cohort["job_id"]),
        "records": lambda cohort: cohort["n_records"],
        "condition": _condition,
    },
)


@cli.command()
@errors_as_exit_codes()
def withheld(context: typer.Context, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List those of the newest cohorts that may not leave, and why."""
    with client_of(context) as client:
        found = client.withheld(limit)
    if as_json:
        print_json(found)
        return
    for each in found:
        say(f"{short(each['cohort_id'])}  {each['why']}")


@cli.command()
@errors_as_exit_codes()
def releases(context: typer.Context, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List cohorts that were released, and the reasons. Needs the scope data."""
    with client_of(context) as client:
        found = client.releases(limit)
    if as_json:
        print_json(found)
        return
    for each in found:
        say(f"{each['released_at'][:16].replace('T', ' ')}  {short(each['cohort_id'])}  {each['reason']}")


@cli.command()
@errors_as_exit_codes()
def parts(context: typer.Context, cohort: CohortId, as_json: AsJson = False) -> None:
    """List the finished parts of a cohort, also while its job runs. `ehr-d3pm download --part` fetches one."""
    with client_of(context) as client:
        found = client.parts(cohort)
    if as_json:
        print_json(found)
        return
    print_table(
        ["part", "first record", "records", "bytes"],
        [[cell(part[name]) for name in ("number", "first_record", "n_records", "bytes")] for part in found["parts"]],
        right=range(4),
        lines=False,
    )
    say(f"{found['state']}: {found['finished_records']:,} of {found['n_records']:,} records")


@takes_conditions
def generate(
    context: typer.Context,
    model: ModelId,
    *,
    asked: Asked,
    evaluate: Annotated[bool, typer.Option(help="also evaluate it and write a report")] = True,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Generate a cohort, under conditions if any are given."""
    options = asked.options()
    with client_of(context) as client:
        job = client.generate(model, evaluate=evaluate, **options)
        for warning in job["warnings"]:
            warn(warning)
        finish(client, job, wait, as_json)


@takes_conditions
def estimate(
    context: typer.Context,
    model: ModelId,
    *,
    asked: Asked,
    fail_on: Annotated[Doubt | None, typer.Option(help=FAIL_ON)] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate what a cohort would take. If its condition cannot be met, show the nearest that can."""
    options = asked.options()
    with client_of(context) as client:
        estimated = client.estimate(model, **options)
    if as_json:
        print_json(estimated)
    else:
        show_estimate(estimated)
    if fail_on is not None and (why := _doubt(estimated, fail_on)) is not None:
        fail(why, Exit.NOT_GOOD_ENOUGH)


def _doubt(estimated: dict[str, Any], doubt: Doubt) -> str | None:
    """Why a request is what it must not be."""
    if not estimated["feasible"]:
        return "it cannot be generated"
    if doubt == Doubt.WITHHELD:
        return None if estimated["withheld"] is None else "the cohort would be withheld"
    parts = [estimated["support"], *(side for t in estimated["targets"] for side in _asked_sides(t))]
    if any(part["matching"] is None for part in parts):
        return "whether the model has seen anything like it is not known"
    return "none of the model's own records satisfies it" if any(part["matching"] == 0 for part in parts) else None


def _asked_sides(target: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a cohort that a target asks for."""
    return [*([target["meeting"]] if target["share"] > 0 else []), *([target["others"]] if target["share"] < 1 else [])]


def download(
    context: typer.Context,
    thing: Annotated[str, id_argument("id of a cohort (for its records) or of a model (bundle)", metavar="ID")],
    to: Annotated[Path | None, typer.Option("--to", "-o", help="file to write")] = None,
    format: Annotated[str, typer.Option(help="`ehr-d3pm formats` lists them")] = "long.csv",
    part: Annotated[int | None, typer.Option(help="only this finished part, as Parquet")] = None,
    names: Annotated[bool, typer.Option("--names", help="with what the codes are called")] = False,
) -> None:
    """Download a cohort's records or a model's bundle."""
    left_out = None
    with client_of(context) as client:
        if thing.startswith("mdl_"):
            target = to or Path(f"{thing}.zip")
            size = client.download_bundle(thing, target)
        elif part is not None:
            target = to or Path(f"{thing}.{part}.parquet")
            size = client.download_part(thing, part, target)
        else:
            target = to or Path(f"{thing}.{format.rsplit('.', 1)[-1]}")
            size = client.download(thing, target, format, names=names)
            cohort = client.cohort(thing)
            left_out = cohort["leaves_out"].get(format)
            if cohort["manifest"].get("request", {}).get("evaluate") is False:
                warn("no report has judged this cohort: it was asked for with --no-evaluate")
    say(f"{target} ({size:,} bytes)")
    if left_out is not None:
        say(f"left out: {left_out}")


def release(
    context: typer.Context,
    cohort: CohortId,
    reason: Annotated[str, typer.Option(help="why it may be released; kept in the audit trail")],
    as_json: AsJson = False,
) -> None:
    """Release a cohort that is withheld. Needs the scope data."""
    with client_of(context) as client:
        released = client.release(cohort, reason)
    if as_json:
        print_json(released)
    else:
        say(f"cohort {cohort} is released")


def show_estimate(estimated: dict[str, Any]) -> None:
    """An estimate as a table, then what there is to know about it."""
    seconds, memory = estimated["seconds"], estimated["memory_gib"]
    steps, workers = estimated["steps"], estimated["workers"]
    rows = [
        ["can be generated", "yes" if estimated["feasible"] else f"no: {estimated['problem']}"],
        ["would be withheld", "no" if estimated["withheld"] is None else "yes, until a custodian releases it"],
        ["of the model's own records", _share(estimated["support"])],
        *(
            [f"with {', '.join(t['codes'])}", f"{t['share']:.0%} asked; {_share(t['meeting'])}"]
            for t in estimated["targets"]
        ),
        ["method", estimated["method"] or "no condition"],
        ["network calls per record", "not known" if steps is None else str(steps)],
        *([["records are", estimated["sampling"]]] if estimated.get("sampling") else []),
        ["parts, workers", f"{estimated['parts']}, {'not known' if workers is None else workers}"],
        ["time", "not known" if seconds is None else f"about {seconds:.3g} s"],
        ["time of its report", _report_seconds(estimated.get("report_seconds"))],
        ["memory per worker", "not known" if memory is None else f"about {memory:.2g} GiB"],
    ]
    print_table(["estimate", ""], rows)
    for warning in estimated["warnings"]:
        say(f"warning: {warning}")
    if estimated["relaxation"] is not None:
        changes = _changes(estimated["relaxation"])
        say(f"nearest that can be had: {changes} ({_share(estimated['relaxation']['support'])})")


def _report_seconds(seconds: float | None) -> str:
    return "not known" if seconds is None else f"about {seconds:.3g} s, as the last one took"


def _changes(relaxation: dict[str, Any]) -> str:
    """`with ICD10CM:E84 (Cystic fibrosis) for ICD10CM:E85; without none_of Z:1`."""
    words = []
    for each in relaxation.get("replaced", []):
        name = f" ({each['name']})" if each["name"] else ""
        words.append(f"with {each['code']}{name} for {each['asked']}")
    for each in relaxation["dropped"]:
        why = f" ({each['reason']})" if each.get("reason") else ""
        # what is dropped of a history is said in words; of other fields, codes are
        field = "" if each["field"] in SAID_IN_WORDS else f"{each['field']} "
        words.append(f"without {field}{', '.join(each['codes'])}{why}")
    return "; ".join(words)


def _share(support: dict[str, Any]) -> str:
    """`412 of 200,000 (0.21%)`: how many of the records that the model drew once satisfy something."""
    if support["matching"] is None:
        return "not known"
    return f"{support['matching']:,} of {support['drawn']:,} satisfy it ({support['share'] or 0:.2%})"
