"""`list`, `show` and `delete`, the same for datasets, models and cohorts."""

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from ehr_d3pm.cli.ids import id_argument
from ehr_d3pm.cli.output import AsJson, Limit, client_of, errors_as_exit_codes, print_json, print_table, say
from ehr_d3pm.client import Client

LONGEST_TEXT = 200  # characters of a list; longer ones are for programs


def collection(
    kind: str,
    listed: Callable[[Client, int], Iterator[dict[str, Any]]],
    shown: Callable[[Client, str], dict[str, Any]],
    columns: dict[str, Callable[[dict[str, Any]], Any]],
) -> typer.Typer:
    """Commands for the things at `/{kind}`; `columns` are the headings of a list and what stands below them, before the
    day on which each was created."""
    columns |= {"created": lambda thing: thing["created_at"][:10]}
    one = kind.removesuffix("s")
    cli = typer.Typer(help=f"List, show and delete {kind}.", no_args_is_help=True, rich_markup_mode=None)
    Id = Annotated[str, id_argument(f"as `ehr-d3pm {kind} list` shows it", metavar="ID")]  # noqa: N806

    @cli.command("list", help=f"List {kind}, newest first.")
    @errors_as_exit_codes()
    def list_things(context: typer.Context, limit: Limit = 20, as_json: AsJson = False) -> None:
        with client_of(context) as client:
            found = list(listed(client, limit))
        if as_json:
            print_json(found)
            return
        rows = [[cell(of(thing)) for of in columns.values()] for thing in found]
        numbers = [i for i, of in enumerate(columns.values()) if found and isinstance(of(found[0]), int)]
        print_table([*columns], rows, numbers, lines=False)

    @cli.command("show", help=f"Show a {one}.")
    @errors_as_exit_codes()
    def show_thing(context: typer.Context, thing: Id, as_json: AsJson = False) -> None:
        with client_of(context) as client:
            found = shown(client, thing)
        if as_json:
            print_json(found)
        else:
            for name, value in flat(found):
                say(f"{name}: {value}")

    @cli.command("delete", help=f"Delete a {one} and its files.")
    @errors_as_exit_codes()
    def delete_thing(
        context: typer.Context, thing: Id, yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False
    ) -> None:
        if not yes:
            typer.confirm(f"Delete {thing} permanently?", abort=True, err=True)
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
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        is_long = isinstance(value, list) and len(text) > LONGEST_TEXT
        yield f"{path}{name}", f"{len(value):,} values (--json shows them)" if is_long else text
