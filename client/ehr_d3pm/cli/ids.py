"""Ids as people type them: the beginning will do, as long as one thing alone begins so."""

from collections.abc import Callable, Iterator
from typing import Any

import typer

from ehr_d3pm.cli.output import Exit, client_of, errors_as_exit_codes, fail
from ehr_d3pm.client import Client
from ehr_d3pm.errors import Json

DIGITS = 32
SHOWN_DIGITS = 8
# how an id begins -> where such things are listed; a cohort's id is that of its job
LISTS: dict[str, Callable[..., Iterator[Json]]] = {
    "job": Client.jobs,
    "ds": Client.datasets,
    "mdl": Client.models,
    "wh": Client.webhooks,
}


def short(thing_id: str) -> str:
    """`job_3f2a91c0`: enough to tell it from others, and for every command."""
    kind, _, digits = thing_id.partition("_")
    return f"{kind}_{digits[:SHOWN_DIGITS]}"


def id_argument(help: str, **options: Any) -> Any:
    """An argument that is an id or its beginning; the command gets the whole id."""
    return typer.Argument(help=help, callback=_whole, **options)


@errors_as_exit_codes()
def _whole(context: typer.Context, value: str) -> str:
    kind, _, digits = value.partition("_")
    if context.resilient_parsing or kind not in LISTS or len(digits) >= DIGITS:
        return value
    with client_of(context) as client:
        found = [each["id"] for each in LISTS[kind](client, id=value, limit=3)]
    if len(found) > 1:
        fail(f"{value} may be {' or '.join(found[:2])}: write more of it", Exit.USAGE)
    return str(found[0]) if found else value  # the service says that there is no such thing
