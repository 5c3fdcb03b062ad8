"""What all commands share: the connection, output for people or for programs, exit codes."""

import functools
import json
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ehr_d3pm.client import Client
from ehr_d3pm.errors import ApiError, JobFailedError, UnreachableError

console = Console()
errors = Console(stderr=True)  # bars and messages; standard output is for results

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

AsJson = Annotated[bool, typer.Option("--json", help="print the answer as JSON")]
Wait = Annotated[bool, typer.Option(help="wait for the job to end, showing its progress")]
Limit = Annotated[int, typer.Option(help="show at most this many")]


class Exit(IntEnum):
    """See `ehr-d3pm --help`."""

    JOB_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    SERVICE_FAILED = 5
    NOT_GOOD_ENOUGH = 6
    INTERRUPTED = 130


def client_of(context: typer.Context) -> Client:
    url, key = context.obj
    return Client(url, key)


def fail(message: str, code: Exit, as_json: Any = None) -> NoReturn:
    """Tell why on standard error and end."""
    if as_json is not None and "--json" in sys.argv:
        print(json.dumps(as_json))
    errors.print(f"error: {message}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(int(code))


def errors_as_exit_codes(
    *usage: type[Exception],
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Deliberate errors become one line and an exit code, those of `usage` the one for wrong usage; all others are bugs
    and keep their traceback."""

    wrong_usage: tuple[type[Exception], ...] = (*usage, FileNotFoundError, IsADirectoryError, PermissionError)

    def wrap(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(command)
        def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                return command(*args, **kwargs)
            except UnreachableError as error:
                fail(str(error), Exit.UNREACHABLE)
            except ApiError as error:
                code = Exit.SERVICE_FAILED if error.status >= 500 else Exit.REFUSED
                fail(f"{error} ({error.type})", code, error.problem)
            except JobFailedError as error:
                fail(f"job {error.job['id']} {error.job['state']}: {error}", Exit.JOB_FAILED, error.job)
            except wrong_usage as error:
                fail(str(error), Exit.USAGE)
            except KeyboardInterrupt:
                fail("interrupted", Exit.INTERRUPTED)

        return wrapped

    return wrap


def say(text: str) -> None:
    """A line on standard output as it is: no markup, no colours, no breaks."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    errors.print(f"warning: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), lines: bool = True
) -> None:
    """A table on standard output; `right` are the columns of numbers. Without lines a whole id and more fit into 80
    columns."""
    table = Table() if lines else Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for position, name in enumerate(header):
        table.add_column(name, justify="right" if position in right else "left", overflow="fold", no_wrap=position == 0)
    for row in rows:
        table.add_row(*map(Text, row))  # names are anybody's: no markup
    console.print(table)
