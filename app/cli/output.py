"""What all commands share: the connection, output for people or for programs, exit codes."""

import functools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from app.client import ApiError, Client, JobFailedError, UnreachableError
from ehr.errors import EhrError

console = Console()
errors = Console(stderr=True)  # bars and messages; standard output is for results

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

AsJson = Annotated[bool, typer.Option("--json", help="print the answer as JSON, for programs")]
Wait = Annotated[bool, typer.Option(help="stay until the job has ended and show its progress")]


class Exit(IntEnum):
    """See the module `app.cli`."""

    OK = 0
    JOB_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    SERVICE_FAILED = 5
    INTERRUPTED = 130


@dataclass(frozen=True)
class Connection:
    url: str | None
    key: str | None

    def client(self) -> Client:
        return Client(self.url, self.key)


def fail(message: str, code: Exit, as_json: Any = None) -> NoReturn:
    """Tell why on standard error and end."""
    if as_json is not None and "--json" in sys.argv:
        print(json.dumps(as_json))
    errors.print(f"error: {message}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(int(code))


def errors_as_exit_codes(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Deliberate errors become one line and an exit code; all others are bugs and keep their traceback."""

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
        except (EhrError, FileNotFoundError, IsADirectoryError, PermissionError) as error:
            fail(str(error), Exit.USAGE)
        except KeyboardInterrupt:
            fail("interrupted", Exit.INTERRUPTED)

    return wrapped


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """A table on standard output; `right` are the columns of numbers."""
    table = Table(title=title or None, title_justify="left")
    for position, name in enumerate(header):
        table.add_column(name, justify="right" if position in right else "left", overflow="fold", no_wrap=position == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table)
