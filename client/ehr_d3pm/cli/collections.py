"""`list`, `show` and `delete`, the same for datasets, models and cohorts."""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from ehr_d3pm.cli.output import (
    AsJson,
    Limit,
    client_of,
    console,
    errors_as_exit_codes,
    print_json,
    print_table,
    say,
)
from ehr_d3pm.client import Client

LONGEST_LIST = 8  # values; longer ones are for programs


def collection(
    kind: str,
    listed: Callable[[Client, int], Iterator[dict[str, Any]]],
    shown: Callable[[Client, str], dict[str, Any]],
    columns: dict[str, Callable[[dict[str, Any]], Any]],
) -> typer.Typer:
    """Commands for the things at `/{kind}`; `columns` are the headings of a list and what stands below them."""
    cli = typer.Typer(help=f"List, show and delete {kind}.", no_args_is_help=True, rich_markup_mode=None)
    Id = Annotated[str, typer.Argument(metavar="ID", help=f"as `ehr-d3pm {kind} list` shows it")]  # noqa: N806

    @cli.command("list", help=f"List {kind}, newest first.")
    @errors_as_exit_codes()
    def list_things(context: typer.Context, limit: Limit = 20, as_json: AsJson = False) -> None:
        with client_of(context) as client:
            found = list(listed(client, limit))
        if as_json:
            print_json(found)
            return
        rows = [[cell(of(thing)) for of in columns.values()] for thing in found]
        numbers = [i for i in range(len(columns)) if found and isinstance([*columns.values()][i](found[0]), int)]
        print_table([*columns], rows, numbers, lines=False)

    @cli.command("show", help=f"Show what is known of one of the {kind}.")
    @errors_as_exit_codes()
    def show_thing(context: typer.Context, thing: Id, as_json: AsJson = False) -> None:
        with client_of(context) as client:
            found = shown(client, thing)
        if as_json:
            print_json(found)
        else:
            for name, value in flat(found):
                console.print(f"{name}: {value}", markup=False, highlight=False)

    @cli.command("delete", help=f"Delete one of the {kind} and its files.")
    @errors_as_exit_codes()
    def delete_thing(
        context: typer.Context, thing: Id, yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False
    ) -> None:
        if not yes:
            typer.confirm(f"Delete {thing} for ever?", abort=True, err=True)
        with client_of(context) as client:
            client.delete(kind, thing)
        say(f"{thing} deleted")

    return cli


def cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def flat(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as `settings.training.epochs` and a text; long lists by their length."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{path}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            short = len(value) <= LONGEST_LIST and not any(isinstance(item, dict | list) for item in value)
            yield f"{path}{name}", ", ".join(map(str, value)) if short else f"{len(value):,} values (--json shows them)"
        else:
            yield f"{path}{name}", "-" if value is None else str(value)
