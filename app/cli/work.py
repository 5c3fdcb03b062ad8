"""Commands that use a running service."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.output import AsJson, Connection, Exit, Wait, console, fail, print_json, print_table
from app.cli.progress import remaining_text, wait_with_bars
from app.client import Client

JobId = Annotated[str, typer.Argument(help="id of a job")]
Codes = Annotated[list[str] | None, typer.Option(metavar="CODE", help="may be given more than once; * is a wildcard")]


def upload(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="long tables: CSV, plain or gzip, or Parquet")],
    name: Annotated[str | None, typer.Option(help="shown in lists")] = None,
    format: Annotated[str, typer.Option(help="auto, long.csv or long.parquet")] = "auto",
    default_vocabulary: Annotated[str | None, typer.Option(help="for tables without a vocabulary column")] = None,
    min_records: Annotated[int | None, typer.Option(help="codes in fewer records are dropped")] = None,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Upload real records."""
    with client_of(context) as client:
        form: dict[str, Any] = {
            "name": name,
            "format": format,
            "default_vocabulary": default_vocabulary,
            "min_records": min_records,
        }
        finish(client, client.upload(files, **form), wait, as_json)


def train(
    context: typer.Context,
    dataset: Annotated[str, typer.Argument(help="id of a dataset")],
    name: Annotated[str | None, typer.Option(help="shown in lists")] = None,
    generator: Annotated[str | None, typer.Option(help="d3pm or independent")] = None,
    preset: Annotated[str | None, typer.Option(help="fast, paper-mimic or paper-large")] = None,
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
    model: Annotated[str, typer.Argument(help="id of a model")],
    n: Annotated[int, typer.Option("-n", "--records", help="synthetic records to draw")] = 1000,
    all_of: Codes = None,
    any_of: Codes = None,
    none_of: Codes = None,
    method: Annotated[str | None, typer.Option(help="how conditions are met: auto, exact or langevin")] = None,
    strength: Annotated[float | None, typer.Option(help="of the guidance")] = None,
    steps: Annotated[int | None, typer.Option(help="network calls")] = None,
    seed: int = 0,
    evaluate: Annotated[bool, typer.Option(help="also write a report")] = True,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Generate a cohort, under conditions if any are given."""
    with client_of(context) as client:
        codes: dict[str, Any] = {"all_of": all_of or [], "any_of": any_of or [], "none_of": none_of or []}
        options: dict[str, Any] = {
            "method": method,
            "strength": strength,
            "steps": steps,
            "seed": seed,
            "evaluate": evaluate,
        }
        finish(client, client.generate(model, n, **codes, **options), wait, as_json)


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
    """Try a failed job again from where it was."""
    with client_of(context) as client:
        finish(client, client.retry(job_id), wait, as_json)


def download(
    context: typer.Context,
    thing: Annotated[str, typer.Argument(help="id of a generate job (records) or of a model (bundle)")],
    to: Annotated[Path | None, typer.Option("--to", "-o", help="file to write")] = None,
    format: Annotated[str, typer.Option(help="long.csv, ndjson or parquet")] = "long.csv",
) -> None:
    """Download a cohort's records or a model's bundle."""
    with client_of(context) as client:
        if thing.startswith("mdl_"):
            target = to or Path(f"{thing}.zip")
            size = client.download_bundle(thing, target)
        else:
            target = to or Path(f"{thing}.{format.rsplit('.', 1)[-1]}")
            size = client.download(thing, target, format)
    console.print(f"{target} ({size:,} bytes)", highlight=False, soft_wrap=True)


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


def finish(client: Client, job: dict[str, Any], wait: bool, as_json: bool) -> None:
    if wait:
        job = wait_with_bars(client, job)
        evaluation = (job["result"] or {}).get("evaluate_job_id")
        if evaluation is not None:  # a cohort without its report is half the answer
            wait_with_bars(client, client.job(evaluation))
    if as_json:
        print_json(job)
    else:
        console.print(f"{job['kind']} {job['id']} {job['state']} {_summary(job)}", highlight=False, soft_wrap=True)


def _summary(job: dict[str, Any]) -> str:
    if job["error"] is not None:
        return f"{job['error']['type']}: {job['error']['detail']}"
    if job["result"] is not None:
        return ", ".join(f"{name} {value}" for name, value in job["result"].items() if name.endswith("_id") and value)
    return remaining_text(job["progress"]["remaining_seconds"])
