"""Commands that use a running service."""

import json
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from app.cli.output import AsJson, Connection, Exit, Wait, console, errors, fail, print_json, print_table
from app.cli.progress import remaining_text, wait_with_bars
from app.client import Client
from ehr.formats import WRITERS
from ehr.generators import generator_names, preset_names
from worker.contract import FormatName, RollupName

JobId = Annotated[str, typer.Argument(help="id of a job")]
ModelId = Annotated[str, typer.Argument(help="id of a model")]
Records = Annotated[int, typer.Option("-n", "--records", help="synthetic records to draw")]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CODE=SHARE", help="such as 'ICD10CM:E11*=0.3': that share has it, the rest does not; repeatable"
    ),
]
Method = Annotated[str | None, typer.Option(help="how conditions are met: auto, exact, langevin or rejection")]
Strength = Annotated[float | None, typer.Option(help="of the guidance by langevin")]
Steps = Annotated[int | None, typer.Option(help="network calls for each record")]
Codes = Annotated[list[str] | None, typer.Option(metavar="CODE", help="may be given more than once; * is a wildcard")]


def upload(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="tables of one format, a folder of them, or a zip")],
    name: Annotated[str | None, typer.Option(help="shown in lists")] = None,
    format: Annotated[str, typer.Option(help=", ".join(get_args(FormatName)))] = "auto",
    unit: Annotated[str | None, typer.Option(help="what a record is: visit or patient")] = None,
    rollup: Annotated[str | None, typer.Option(help=f"of ICD codes: {', '.join(get_args(RollupName))}")] = None,
    codes_from: Annotated[str | None, typer.Option(help="of OMOP tables: source or concept")] = None,
    demographics: Annotated[bool, typer.Option(help="make codes of sex and age band")] = True,
    default_vocabulary: Annotated[str | None, typer.Option(help="for tables that name no system")] = None,
    min_records: Annotated[int | None, typer.Option(help="codes in fewer records are dropped")] = None,
    attacks: Annotated[bool, typer.Option(help="no: the data's terms forbid experiments in re-identification")] = True,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Upload real records."""
    with client_of(context) as client:
        form: dict[str, Any] = {
            "name": name,
            "format": format,
            "unit": unit,
            "rollup": rollup,
            "codes_from": codes_from,
            "demographics": demographics,
            "default_vocabulary": default_vocabulary,
            "min_records": min_records,
            "may_be_attacked": attacks,
        }
        job = finish(client, client.upload(files, **form), wait, as_json)
    if not as_json and job["result"] is not None:
        console.print(_told_format(job["result"]["summary"]), highlight=False, soft_wrap=True)


def train(
    context: typer.Context,
    dataset: Annotated[str, typer.Argument(help="id of a dataset")],
    name: Annotated[str | None, typer.Option(help="shown in lists")] = None,
    generator: Annotated[str | None, typer.Option(help=", ".join(generator_names()))] = None,
    preset: Annotated[str | None, typer.Option(help=f"one of {', '.join(preset_names())}")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="such as training.epochs=5; repeatable")
    ] = None,
    seed: int = 0,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Train a model on a dataset."""
    with client_of(context) as client:
        settings = parsed_settings(set_ or [])
        job = client.train(dataset, name=name, generator=generator, preset=preset, settings=settings, seed=seed)
        finish(client, job, wait, as_json)


def generate(
    context: typer.Context,
    model: ModelId,
    n: Records = 1000,
    all_of: Codes = None,
    any_of: Codes = None,
    none_of: Codes = None,
    target: Targets = None,
    method: Method = None,
    strength: Strength = None,
    steps: Steps = None,
    seed: int = 0,
    evaluate: Annotated[bool, typer.Option(help="also write a report")] = True,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Generate a cohort, under conditions if any are given."""
    asked = _asked(all_of, any_of, none_of, target, method, strength, steps)
    with client_of(context) as client:
        job = client.generate(model, n, seed=seed, evaluate=evaluate, **asked)
        for warning in job["warnings"]:
            errors.print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)
        finish(client, job, wait, as_json)


def estimate(
    context: typer.Context,
    model: ModelId,
    n: Records = 1000,
    all_of: Codes = None,
    any_of: Codes = None,
    none_of: Codes = None,
    target: Targets = None,
    method: Method = None,
    strength: Strength = None,
    steps: Steps = None,
    as_json: AsJson = False,
) -> None:
    """Tell what generating a cohort would take, and what can be had if the condition cannot."""
    asked = _asked(all_of, any_of, none_of, target, method, strength, steps)
    with client_of(context) as client:
        told = client.estimate(model, n, **asked)
    if as_json:
        print_json(told)
    else:
        show_estimate(told)


def _asked(
    all_of: list[str] | None,
    any_of: list[str] | None,
    none_of: list[str] | None,
    target: list[str] | None,
    method: str | None,
    strength: float | None,
    steps: int | None,
) -> dict[str, Any]:
    return {
        "all_of": all_of,
        "any_of": any_of,
        "none_of": none_of,
        "targets": parsed_targets(target or []),
        "method": method,
        "strength": strength,
        "steps": steps,
    }


def jobs(
    context: typer.Context,
    kind: Annotated[str | None, typer.Option(help="ingest, train, generate or evaluate")] = None,
    state: Annotated[str | None, typer.Option(help="queued, running, succeeded, failed, ...")] = None,
    limit: Annotated[int, typer.Option(help="most jobs to show")] = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    with client_of(context) as client:
        found = list(client.jobs(kind, state, limit))
    if as_json:
        print_json(found)
        return
    rows = [[j["id"], j["kind"], j["state"], _summary(j), j["created_at"][:19].replace("T", " ")] for j in found]
    print_table("", ["job", "kind", "state", "", "created"], rows)


def job(context: typer.Context, job_id: JobId, wait: Wait = False, as_json: AsJson = False) -> None:
    """Show a job, or wait for it."""
    with client_of(context) as client:
        finish(client, client.job(job_id), wait, as_json)


def cancel(context: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Cancel a job."""
    with client_of(context) as client:
        finish(client, client.cancel(job_id), False, as_json)


def retry(context: typer.Context, job_id: JobId, wait: Wait = True, as_json: AsJson = False) -> None:
    """Try a failed job, or a cancelled cohort, again from where it was."""
    with client_of(context) as client:
        finish(client, client.retry(job_id), wait, as_json)


def download(
    context: typer.Context,
    thing: Annotated[str, typer.Argument(help="id of a generate job (records) or of a model (bundle)")],
    to: Annotated[Path | None, typer.Option("--to", "-o", help="file to write")] = None,
    format: Annotated[str, typer.Option(help=", ".join(writer.name for writer in WRITERS))] = "long.csv",
) -> None:
    """Download a cohort's records or a model's bundle."""
    with client_of(context) as client:
        if thing.startswith("mdl_"):
            target = to or Path(f"{thing}.zip")
            size = client.download_bundle(thing, target)
            left_out = []
        else:
            target = to or Path(f"{thing}.{format.rsplit('.', 1)[-1]}")
            size = client.download(thing, target, format)
            left_out = [writer.leaves_out for writer in WRITERS if writer.name == format and writer.leaves_out]
    console.print(f"{target} ({size:,} bytes)", highlight=False, soft_wrap=True)
    for what in left_out:
        console.print(f"not carried: {what}", highlight=False, soft_wrap=True)


def show_estimate(told: dict[str, Any]) -> None:
    """An estimate as a table, then what there is to know about it."""
    support = told["support"]
    seconds, memory = told["seconds"], told["memory_gib"]
    rows = [
        ["can be generated", "yes" if told["feasible"] else f"no: {told['problem']}"],
        ["training records that satisfy it", _count(support)],
        *(
            [f"with {', '.join(t['codes'])}", f"{t['share']:.0%} asked; {_count(t['meeting'])}"]
            for t in told["targets"]
        ),
        ["method", told["method"] or "no condition"],
        ["network calls for each record", "not known" if told["steps"] is None else str(told["steps"])],
        ["parts, workers", f"{told['parts']}, {'not known' if told['workers'] is None else told['workers']}"],
        ["time", "not known" if seconds is None else f"about {seconds:.3g} s"],
        ["memory of a worker", "not known" if memory is None else f"about {memory:.2g} GiB"],
    ]
    print_table("", ["estimate", ""], rows)
    for warning in told["warnings"]:
        console.print(f"warning: {warning}", markup=False, highlight=False, soft_wrap=True)
    if told["relaxation"] is not None:
        dropped = "; ".join(f"{d['field']} {', '.join(d['codes'])}" for d in told["relaxation"]["dropped"])
        left = _count(told["relaxation"]["support"])
        console.print(
            f"nearest that can be had: without {dropped} ({left})", markup=False, highlight=False, soft_wrap=True
        )


def _count(support: dict[str, Any]) -> str:
    if support["seen"] == "yes":
        return f"about {support['records']:,}"
    return {"no": "none"}.get(support["seen"], str(support["seen"]))


def parsed_targets(words: list[str]) -> list[dict[str, Any]]:
    """`ICD10CM:E11*=0.3`, or several codes with commas between them, as targets."""
    targets = []
    for word in words:
        codes, equals, share = word.rpartition("=")
        try:
            targets.append({"codes": codes.split(","), "share": float(share)})
        except ValueError:
            equals = ""
        if not equals or not codes:
            fail(f"--target {word}: write CODE=SHARE, for example ICD10CM:E11*=0.3", Exit.USAGE)
    return targets


def parsed_settings(pairs: list[str]) -> dict[str, Any]:
    """`training.epochs=5` as nested settings; values are JSON, or text where they are none."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        if not equals or not path:
            fail(f"--set {pair}: write NAME=VALUE, for example training.epochs=5", Exit.USAGE)
        *outer, last = path.split(".")
        inner = settings
        for name in outer:
            inner = inner.setdefault(name, {})
        try:
            inner[last] = json.loads(text)
        except ValueError:
            inner[last] = text
    return settings


def client_of(context: typer.Context) -> Client:
    connection: Connection = context.obj
    return connection.client()


def finish(client: Client, job: dict[str, Any], wait: bool, as_json: bool) -> dict[str, Any]:
    if wait:
        job = wait_with_bars(client, job)
        evaluation = (job["result"] or {}).get("evaluate_job_id")
        if evaluation is not None:  # a cohort without its report is half the answer
            wait_with_bars(client, client.job(evaluation))
    if as_json:
        print_json(job)
    else:
        console.print(f"{job['kind']} {job['id']} {job['state']} {_summary(job)}", highlight=False, soft_wrap=True)
    return job


def _told_format(summary: dict[str, Any]) -> str:
    """What an upload was taken for, and what it gave."""
    found, rows = summary["format"], summary["rows"]
    how = "recognised as" if found["recognised"] else "read as"
    tables = ", ".join(sorted({table["table"] for table in found["tables"]}))
    records = "few" if summary["records"] is None else f"{summary['records']:,}"
    told = f"{how} {found['name']} ({tables}): {records} records, one per {found['unit']}, {summary['codes']:,} codes"
    return f"{told}; {rows['read']:,} rows read, {rows['rejected']:,} rejected"


def _summary(job: dict[str, Any]) -> str:
    if job["error"] is not None:
        return f"{job['error']['type']}: {job['error']['detail']}"
    if job["result"] is not None:
        return ", ".join(f"{name} {value}" for name, value in job["result"].items() if name.endswith("_id") and value)
    return remaining_text(job["progress"]["remaining_seconds"])
