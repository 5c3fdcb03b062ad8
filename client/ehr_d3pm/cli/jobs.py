"""Jobs: list, show, wait for, cancel, try again."""

from typing import Annotated, Any

import typer
from rich.padding import Padding
from rich.text import Text

from ehr_d3pm.cli.output import AsJson, Limit, Wait, client_of, console, print_json, say
from ehr_d3pm.cli.progress_bars import remaining_text, wait_with_bars
from ehr_d3pm.client import Client

JobId = Annotated[str, typer.Argument(help="id of a job")]


def jobs(
    context: typer.Context,
    kind: Annotated[str | None, typer.Option(help="ingest, train, generate or evaluate")] = None,
    state: Annotated[str | None, typer.Option(help="queued, running, succeeded, failed, ...")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    with client_of(context) as client:
        found = list(client.jobs(kind, state, limit))
    if as_json:
        print_json(found)
        return
    for job in found:  # no table: in 80 columns an id leaves no room for what came of the job
        say(f"{job['id']}  {job['kind']:<8}  {job['state']:<10}  {job['created_at'][:16].replace('T', ' ')}")
        if summary := _summary(job):
            console.print(Padding(Text(summary), (0, 0, 0, 4), expand=False))


def job(context: typer.Context, job_id: JobId, wait: Wait = False, as_json: AsJson = False) -> None:
    """Show a job, or wait for it."""
    with client_of(context) as client:
        finish(client, client.job(job_id), wait, as_json)


def cancel(context: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Cancel a job."""
    with client_of(context) as client:
        finish(client, client.cancel(job_id), False, as_json)


def retry(context: typer.Context, job_id: JobId, wait: Wait = True, as_json: AsJson = False) -> None:
    """Retry a failed job or cancelled cohort from where it stopped."""
    with client_of(context) as client:
        finish(client, client.retry(job_id), wait, as_json)


def finish(client: Client, job: dict[str, Any], wait: bool, as_json: bool) -> dict[str, Any]:
    """Wait for a job if that is wanted, and show it."""
    if wait:
        job = wait_with_bars(client, job)
        evaluation = (job["result"] or {}).get("evaluate_job_id")
        if evaluation is not None:  # a cohort without its report is half the answer
            wait_with_bars(client, client.job(evaluation))
    if as_json:
        print_json(job)
    else:
        say(f"{job['kind']} {job['id']} {job['state']} {_summary(job)}")
    return job


def _summary(job: dict[str, Any]) -> str:
    if job["error"] is not None:
        return f"{job['error']['type']}: {job['error']['detail']}"
    if job["result"] is not None:
        return ", ".join(f"{name} {value}" for name, value in job["result"].items() if name.endswith("_id") and value)
    return remaining_text(job["progress"]["remaining_seconds"])
