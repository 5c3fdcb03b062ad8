"""A job's steps as bars with the time that remains."""

from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ehr_d3pm.cli.output import errors
from ehr_d3pm.client import Client


def wait_with_bars(client: Client, job: dict[str, Any], label: str | None = None) -> dict[str, Any]:
    """Wait for a job, one bar for each step; the job when it has succeeded."""
    columns = (
        TextColumn("{task.description:<26}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[remaining]}"),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=errors) as bars:
        return client.wait(job, lambda now: _show(bars, tasks, now, label or now["kind"]))


def _show(bars: Progress, tasks: dict[str, TaskID], job: dict[str, Any], label: str) -> None:
    progress = job["progress"]
    for step in progress["steps"]:
        name = step["name"]
        if step["maximum"] is None and name != progress["step"]:
            continue  # has not begun
        if name not in tasks:
            tasks[name] = bars.add_task(f"{label}: {name}", total=None, remaining="")
        is_current = name == progress["step"] and job["state"] == "running"
        remaining = remaining_text(progress["remaining_seconds"]) if is_current else ""
        bars.update(tasks[name], total=step["maximum"], completed=step["value"], remaining=remaining)


def remaining_text(seconds: float | None) -> str:
    """`2 min 5 s left`."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s left" if minutes else f"{rest} s left"
