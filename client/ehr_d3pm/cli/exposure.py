"""Who has had how much of a model, and who did what."""

import textwrap
from typing import Annotated, Any

import typer

from ehr_d3pm.cli.cohorts import ModelId
from ehr_d3pm.cli.collections import cell
from ehr_d3pm.cli.output import AsJson, Limit, client_of, print_json, print_table, say

WIDTH = 80
COUNTED = {"conditions": "conditions", "small_conditions": "small ones", "records": "records"}


def exposure(context: typer.Context, model: ModelId, as_json: AsJson = False) -> None:
    """Show how much of a model each key has had, and its own caps."""
    with client_of(context) as client:
        found = client.exposure(model)
    if as_json:
        print_json(found)
        return
    rows = [
        [each["key"], *(_used(each, name) for name in COUNTED), each["last_at"][:10], each["name"]] for each in found
    ]
    print_table(["key", *COUNTED.values(), "last", "for"], rows, right=(1, 2, 3), lines=False)


def _used(exposed: dict[str, Any], name: str) -> str:
    """`12 of 200` where the cap is known."""
    cap = (exposed["caps"] or {}).get(name)
    return cell(exposed[name]) if cap is None else f"{exposed[name]:,} of {cap:,}"


def budgets(context: typer.Context, as_json: AsJson = False) -> None:
    """Show how much you have waiting and stored, and may have."""
    with client_of(context) as client:
        found = client.budgets()
    if as_json:
        print_json(found)
        return
    rows = [[name.replace("_", " "), cell(each["used"]), cell(each["most"])] for name, each in found.items()]
    print_table(["", "used", "at most"], rows, right=(1, 2), lines=False)


def audit(
    context: typer.Context,
    action: Annotated[str | None, typer.Option(help="such as 'submit generate', 'estimate' or 'denied'")] = None,
    prefix: Annotated[str | None, typer.Option("--key", help="prefix of a key, as `keys list` shows it")] = None,
    target: Annotated[str | None, typer.Option(help="id of what was acted on, or a route that was refused")] = None,
    since: Annotated[str | None, typer.Option(help="from this moment on, such as 2026-01-31")] = None,
    until: Annotated[str | None, typer.Option(help="before this moment")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show who did what and what was refused, newest first. Needs the scope admin."""
    with client_of(context) as client:
        found = list(client.audit(limit, action=action, key=prefix, target=target, since=since, until=until))
    if as_json:
        print_json(found)
        return
    for row in found:
        detail = " ".join(f"{name}={_short(value)}" for name, value in row["detail"].items() if value is not None)
        moment, who = row["created_at"][:19], row["key_prefix"] or row["owner"] or "nobody"
        say(f"{moment}  {who}  {row['action']}")
        for line in textwrap.wrap(f"{row['target']} {detail}", WIDTH - 2):
            say(f"  {line}")


def _short(value: Any) -> str:
    """Hashes are told apart by their beginnings."""
    text = str(value)
    return f"{text[:12]}\u2026" if len(text) == 64 and text.isalnum() else text
