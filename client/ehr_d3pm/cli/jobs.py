"""Jobs: list, show, wait for, cancel, try again."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.text import Text

from ehr_d3pm.cli.ids import id_argument, short
from ehr_d3pm.cli.output import AsJson, Exit, Limit, Wait, client_of, console, fail, print_json, say
from ehr_d3pm.cli.progress_bars import remaining_text, wait_with_bars
from ehr_d3pm.client import TERMINAL_STATES, Client
from ehr_d3pm.errors import ApiError

JobId = Annotated[str, id_argument("id of a job, or its beginning")]
WATCH = "show them again every two seconds, until none waits or runs"
WATCH_SECONDS = 2.0
AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))


def jobs(
    context: typer.Context,
    kind: Annotated[str | None, typer.Option(help="ingest, train, generate, evaluate or export")] = None,
    state: Annotated[str | None, typer.Option(help="queued, running, succeeded, failed, ...")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help=WATCH)] = False,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first, a line each.

    What each is, how far, and how long ago it was asked for.
    """
    with client_of(context) as client:
        found = list(client.jobs(kind, state, limit))
        if as_json:
            print_json(found)
            return
        names = _names_of_models(client)
        if not watch:
            for line in _lines(found, names):
                say(line)
            return
        with suppress(KeyboardInterrupt), Live(Text(), console=console) as live:
            while True:
                live.update(Text("\n".join(_lines(found, names))), refresh=True)
                if all(each["state"] in TERMINAL_STATES for each in found):
                    return
                time.sleep(WATCH_SECONDS)
                found = list(client.jobs(kind, state, limit))


def job(
    context: typer.Context,
    job_id: JobId,
    wait: Wait = False,
    log: Annotated[bool, typer.Option("--log", help="what happened to it and when")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a job, or wait for it."""
    with client_of(context) as client:
        if log and as_json:
            print_json(client.log(job_id))
            return
        finish(client, client.job(job_id), wait, as_json)
        for line in client.log(job_id) if log else []:
            say(f"  {datetime.fromisoformat(line['at']):%Y-%m-%d %H:%M:%S}  {_happened(line)}")


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
    took = ""
    if wait:
        with _going_on(job["id"]):
            job = wait_with_bars(client, job)
        took = f" in {_seconds(job)}"
        evaluation = (job["result"] or {}).get("evaluate_job_id")
        if evaluation is not None:  # a cohort without its report is half the answer
            with _going_on(evaluation):
                took += f", its report in {_seconds(wait_with_bars(client, client.job(evaluation)))}"
    if as_json:
        print_json(job)
    else:
        say(f"{job['kind']} {job['id']} {job['state']}{took} {_summary(job)}")
    return job


def _happened(line: Mapping[str, Any]) -> str:
    """A line of a log in words."""
    if line["step"] is not None:
        return f"  {line['step']}"
    attempt = f", attempt {line['attempt']}" if line["attempt"] is not None else ""
    error = f", {line['error']['type']}: {line['error']['detail']}" if line["error"] is not None else ""
    return f"{line['state']}{attempt}{error}"


@contextmanager
def _going_on(job_id: str) -> Iterator[None]:
    """Ctrl-C ends the waiting, not the work: say so."""
    try:
        yield
    except KeyboardInterrupt:
        fail(
            f"not waiting any more; the job goes on. 'ehr-d3pm job {short(job_id)} --wait' waits for it again, "
            f"'ehr-d3pm cancel {short(job_id)}' ends it",
            Exit.INTERRUPTED,
        )


def _seconds(job: Mapping[str, Any]) -> str:
    start, end = (datetime.fromisoformat(job[name]) for name in ("started_at", "finished_at"))
    return f"{(end - start).total_seconds():.3g} s"


def _lines(found: list[dict[str, Any]], names: Mapping[str, str]) -> Iterator[str]:
    """One for each job, no wider than the terminal."""
    for job in found:
        line = f"{short(job['id'])}  {job['kind']:<8}  {job['state']:<10}  {age(job['created_at']):>6}  "
        what = ": ".join(filter(None, (_what(job, names), _summary(job, short))))
        room = console.width - len(line)
        yield line + (what if len(what) <= room else f"{what[: room - 1]}\u2026")


def _what(job: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """What a job is about, in words where there are any."""
    request = job["request"]
    if job["kind"] == "generate":
        model = str(request.get("model_id", ""))
        return f"{request.get('n', 0):,} of {names.get(model) or short(model)}"
    if job["kind"] == "evaluate":
        return f"report on {short(request.get('cohort_job_id', ''))}"
    if job["kind"] == "export":
        return f"{short(request.get('cohort_job_id', ''))} as {request.get('sink', {}).get('kind', '')}"
    return str(request.get("name", ""))


def _names_of_models(client: Client) -> dict[str, str]:
    try:
        return {each["id"]: each["name"] for each in client.models(limit=500)}
    except ApiError:
        return {}  # a key that may not read models has their ids


def age(moment: str) -> str:
    """`12 min` since then."""
    seconds = max((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds(), 0)
    for unit, name in AGES:
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _summary(job: Mapping[str, Any], shown: Any = str) -> str:
    """What came of a job, or how long it will still take."""
    if job["error"] is not None:
        return f"{job['error']['type']}: {job['error']['detail']}"
    if job["result"] is not None:
        given = [(name, value) for name, value in job["result"].items() if name.endswith("_id") and value]
        return ", ".join(f"{name} {shown(value)}" for name, value in given if value != job["id"] or shown is str)
    return remaining_text(job["progress"]["remaining_seconds"])
