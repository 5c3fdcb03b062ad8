"""Datasets: upload, and what became of them."""

from functools import partial
from typing import Annotated, Any

import typer

from ehr_d3pm.cli.collections import collection
from ehr_d3pm.cli.ids import id_argument, short
from ehr_d3pm.cli.jobs import finish
from ehr_d3pm.cli.output import AsJson, Wait, client_of, errors_as_exit_codes, print_json, print_table, say, warn
from ehr_d3pm.cli.places import source_of
from ehr_d3pm.client import Client

DatasetId = Annotated[str, id_argument("id of a dataset, or its beginning")]

FEW = (
    "there are too few patients for a report to judge privacy: cohorts made from this data will be withheld until a"
    " custodian releases them. Upload more, or give larger shares with --holdout-share and --test-share"
)

cli = collection(
    "datasets",
    Client.datasets,
    Client.dataset,
    {
        "dataset": lambda dataset: short(dataset["id"]),
        "name": lambda dataset: dataset["name"],
        "records": lambda dataset: dataset["summary"].get("records"),
        "codes": lambda dataset: dataset["n_codes"],
    },
)


@cli.command()
@errors_as_exit_codes()
def labs(context: typer.Context, dataset: DatasetId, as_json: AsJson = False) -> None:
    """Show the labs that became deciles, with their nine cut points and their unit."""
    with client_of(context) as client:
        found = client.labs(dataset)
    if as_json:
        print_json(found)
    else:
        points = [" ".join(f"{point:.4g}" for point in lab["cut_points"]) for lab in found]
        rows = [[lab["code"], own, lab.get("unit") or ""] for lab, own in zip(found, points, strict=True)]
        print_table(["lab", "cut points", "unit"], rows, lines=False)


@cli.command()
@errors_as_exit_codes()
def dependants(context: typer.Context, dataset: DatasetId, as_json: AsJson = False) -> None:
    """List what was made from a dataset, and the jobs that work on it."""
    with client_of(context) as client:
        found = client.dependants(dataset)
    if as_json:
        print_json(found)
    else:
        print_table(["kind", "id"], [[kind, each] for kind, ids in found.items() for each in ids], lines=False)


@cli.command()
@errors_as_exit_codes()
def erase(
    context: typer.Context,
    dataset: DatasetId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a dataset and everything made from it, and cancel jobs that work on it. What remains is shown with why."""
    with client_of(context) as client:
        if not yes:
            made = {kind: len(ids) for kind, ids in client.dependants(dataset).items() if ids}
            besides = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in made.items()) or "nothing else"
            typer.confirm(f"Erase {dataset} permanently, and {besides}?", abort=True, err=True)
        report = client.erase(dataset)
    if as_json:
        print_json(report)
        return
    for kind, ids in report["removed"].items():
        say(f"removed {kind}: {', '.join(ids) or 'none'}")
    say(f"cancelled jobs: {', '.join(report['cancelled_jobs']) or 'none'}")
    for each in report["remains"]:
        say(f"remains: {each['what']} ({each['why']})")


@cli.command()
@errors_as_exit_codes()
def erasure(
    context: typer.Context, dataset: Annotated[str, typer.Argument(help="whole id of an erased dataset")]
) -> None:
    """Show the report of an erasure, and whether all files are gone by now."""
    with client_of(context) as client:
        print_json(client.erasure(dataset))


def upload(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="tables of one format, a folder of them, a zip; or addresses (s3://, https://) to fetch"),
    ] = None,
    omop: Annotated[str | None, typer.Option(metavar="CONNECTION.SCHEMA", help="fetch an OMOP CDM instead")] = None,
    cohort: Annotated[str | None, typer.Option(metavar="[SCHEMA.]ID", help="with --omop: only this cohort")] = None,
    fhir: Annotated[str | None, typer.Option(metavar="SERVER[/GROUP]", help="fetch a FHIR export instead")] = None,
    name: Annotated[str | None, typer.Option(help="name shown in lists")] = None,
    format: Annotated[str, typer.Option(help="`ehr-d3pm formats` lists what can be read")] = "auto",
    unit: Annotated[str | None, typer.Option(help="what a record is: visit, patient or history")] = None,
    rollup: Annotated[str | None, typer.Option(help="how to group ICD codes; `ehr-d3pm formats` lists them")] = None,
    codes_from: Annotated[str | None, typer.Option(help="in OMOP tables: source or concept")] = None,
    demographics: Annotated[bool, typer.Option(help="add codes for sex and age band")] = True,
    birth_years: Annotated[bool, typer.Option(help="of histories: add codes for the decade of birth")] = False,
    default_vocabulary: Annotated[str | None, typer.Option(help="code system of tables that name none")] = None,
    min_records: Annotated[int | None, typer.Option(help="drop codes found in fewer records")] = None,
    holdout_share: Annotated[float | None, typer.Option(help="share of patients kept for early stopping")] = None,
    test_share: Annotated[float | None, typer.Option(help="share of patients kept to evaluate cohorts on")] = None,
    attacks: Annotated[bool, typer.Option(help="whether the data's terms allow re-identification tests")] = True,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="CODES=RULE", help="such as 'PAYER:*=exactly one' or '=at most one'; repeatable"),
    ] = None,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Upload real records, or have the service fetch them.

    `ehr-d3pm places` lists where it may fetch from.
    """
    source = source_of(files or [], omop, cohort, fhir)
    with client_of(context) as client:
        send = partial(client.upload, files or []) if source is None else partial(client.fetch, source)
        job = send(
            name=name,
            format=format,
            unit=unit,
            rollup=rollup,
            codes_from=codes_from,
            demographics=demographics,
            birth_years=birth_years or None,
            default_vocabulary=default_vocabulary,
            min_records=min_records,
            holdout_share=holdout_share,
            test_share=test_share,
            may_be_attacked=attacks,
            groups=[_group(text) for text in group or []] or None,
        )
        job = finish(client, job, wait, as_json)
    if not as_json and job["result"] is not None:
        say(_what_was_read(job["result"]["summary"]))
        if job["result"]["summary"].get("can_be_judged") is False:
            warn(FEW)


def _group(text: str) -> dict[str, str]:
    codes, found, rule = text.partition("=")
    if not found:
        raise typer.BadParameter(f"'{text}' names no rule: write it as 'PAYER:*=exactly one'")
    return {"codes": codes, "rule": rule}


def _what_was_read(summary: dict[str, Any]) -> str:
    """What an upload was taken for, and what it gave."""
    found, rows = summary["format"], summary["rows"]
    how = "recognised as" if found["recognised"] else "read as"
    tables = ", ".join(sorted({table["table"] for table in found["tables"]}))
    records = "few" if summary["records"] is None else f"{summary['records']:,}"
    what = f"records, one per {found['unit']}"
    if found["unit"] == "history":
        visits = summary.get("visits")
        what = f"patients with {'few' if visits is None else f'{visits:,}'} visits in order"
    read = f"{how} {found['name']} ({tables}): {records} {what}, {summary['codes']:,} codes"
    groups = [f"{group['rule']} of {group['codes']}" for group in summary.get("groups", [])]
    held = f"\nevery record has {', '.join(groups)}" if groups else ""
    more = f"{_labs_read(summary)}{_rules_applied(summary)}{held}"
    return f"{read}; {rows['read']:,} rows read, {rows['rejected']:,} rejected{more}"


def _rules_applied(summary: dict[str, Any]) -> str:
    """What became of visits without dates, out of order, on one day, after a death; counts of 1 to 10 are not shown."""
    counted = {rule: n for rule, n in (summary.get("history_rules") or {}).items() if rule != "most_visits" and n != 0}
    said = [f"{rule.replace('_', ' ')}: {'few' if n is None else f'{n:,}'}" for rule, n in counted.items()]
    return "".join(f"\n{line}" for line in said)


def _labs_read(summary: dict[str, Any]) -> str:
    labs = summary.get("labs", {})
    if not labs.get("with_deciles"):
        return ""
    other = labs.get("rows_in_other_units", 0)
    left = f"; {'few' if other is None else f'{other:,}'} values in other units than the commonest were not used"
    return f"\n{labs['with_deciles']:,} labs have values{left if other != 0 else ''}"
