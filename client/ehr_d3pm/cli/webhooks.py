"""Webhooks: addresses that are told how jobs end."""

from typing import Annotated

import typer

from ehr_d3pm.cli.collections import collection
from ehr_d3pm.cli.ids import id_argument, short
from ehr_d3pm.cli.output import AsJson, Limit, client_of, errors_as_exit_codes, print_json, print_table, say
from ehr_d3pm.client import Client
from ehr_d3pm.errors import Json

WebhookId = Annotated[str, id_argument("id of a webhook, or its beginning")]

cli = collection(
    "webhooks",
    Client.webhooks,
    Client.webhook,
    {
        "webhook": lambda webhook: short(webhook["id"]),
        "name": lambda webhook: webhook["name"],
        "url": lambda webhook: webhook["url"],
        "disabled": lambda webhook: webhook["disabled"] or "",
    },
)


@cli.command()
@errors_as_exit_codes()
def add(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="address to tell, https://...")],
    name: Annotated[str | None, typer.Option(help="name shown in lists")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="of jobs: ingest, train, generate, evaluate")] = None,
    as_json: AsJson = False,
) -> None:
    """Have an address told when jobs end. The secret is shown once."""
    with client_of(context) as client:
        _show_secret(client.add_webhook(url, name=name, kinds=kind), as_json)


@cli.command()
@errors_as_exit_codes()
def rotate(context: typer.Context, webhook: WebhookId, as_json: AsJson = False) -> None:
    """Give a webhook a new secret. For a day messages are signed with the one before, too."""
    with client_of(context) as client:
        _show_secret(client.rotate_webhook(webhook), as_json)


@cli.command()
@errors_as_exit_codes()
def enable(context: typer.Context, webhook: WebhookId) -> None:
    """Send again to a webhook that is disabled."""
    with client_of(context) as client:
        say(f"{client.enable_webhook(webhook)['id']} is enabled")


@cli.command()
@errors_as_exit_codes()
def test(context: typer.Context, webhook: WebhookId) -> None:
    """Send a message now; `deliveries` shows what becomes of it."""
    with client_of(context) as client:
        say(f"{client.test_webhook(webhook)['id']} will be sent")


@cli.command()
@errors_as_exit_codes()
def deliveries(
    context: typer.Context,
    webhook: WebhookId,
    state: Annotated[str | None, typer.Option(help="pending, delivered or failed")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List what was sent to a webhook, newest first."""
    with client_of(context) as client:
        found = list(client.deliveries(webhook, state, limit))
    if as_json:
        print_json(found)
        return
    rows = [[each["id"], each["event"], each["state"], str(each["attempts"]), _outcome(each)] for each in found]
    print_table(["message", "event", "state", "sent", "answer"], rows, right=(3,), lines=False)


@cli.command()
@errors_as_exit_codes()
def replay(
    context: typer.Context, webhook: WebhookId, message: Annotated[str, typer.Argument(help="id of a message")]
) -> None:
    """Send a message again, under its id."""
    with client_of(context) as client:
        say(f"{client.replay(webhook, message)['id']} will be sent again")


def _outcome(delivery: Json) -> str:
    return str(delivery["status"] or delivery["error"] or "")


def _show_secret(webhook: Json, as_json: bool) -> None:
    if as_json:
        print_json(webhook)
        return
    say(f"{webhook['id']} {webhook['url']}")
    say(webhook["secret"])
    say("Keep the secret: it is not shown again. It verifies what is sent (standardwebhooks.com).")
