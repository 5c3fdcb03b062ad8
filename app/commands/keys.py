"""API keys. These commands work on the database itself: DATABASE_URL, else that of the data folder."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from app.commands.database import DataDir, database_session
from ehr.errors import EhrError
from ehr_d3pm.cli.output import AsJson, Exit, errors_as_exit_codes, fail, print_json, print_table, say

if TYPE_CHECKING:
    from model_store.tables import ApiKey

cli = typer.Typer(
    help="Create, list and revoke API keys, and change their caps.", no_args_is_help=True, rich_markup_mode=None
)
OWNER_LENGTH = 64


class Role(StrEnum):
    """Of whoever a key is for; model_store.repositories.access has their scopes."""

    ANALYST = "analyst"
    CUSTODIAN = "custodian"
    ADMIN = "admin"


@cli.command()
@errors_as_exit_codes(EhrError)
def create(
    owner: Annotated[str, typer.Option(help="whose data the key opens; keys of one owner share it")],
    name: Annotated[str, typer.Option(help="what the key is for")] = "",
    role: Annotated[Role, typer.Option(help="who it is for")] = Role.ANALYST,
    scopes: Annotated[str | None, typer.Option(help="instead of a role: scopes, separated by commas")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is shown once.

    An analyst generates cohorts and reads what may be shared about them. A custodian holds the real records: uploads,
    trains, and sees every figure. An admin may do all there is, and releases what is withheld.
    """
    if not 0 < len(owner) <= OWNER_LENGTH or not owner.isprintable():
        fail(f"an owner's name has 1 to {OWNER_LENGTH} characters", Exit.USAGE)
    from model_store.repositories import AuditRepository, KeyRepository
    from model_store.repositories.access import ROLES

    with database_session(data_dir) as session:
        wanted = ROLES[role] if scopes is None else [scope.strip() for scope in scopes.split(",")]
        key, secret = KeyRepository(session).create(owner, name[:200], wanted)
        AuditRepository(session).record(owner, "create key", key.id, key.prefix)
        shown = _shown(key) | {"key": secret}
    if as_json:
        print_json(shown)
        return
    say(secret)
    say(f"Scopes: {', '.join(key.scopes)}.")
    say("Keep it: it is not shown again. Send it as 'Authorization: Bearer ...' or set EHR_D3PM_KEY.")


@cli.command("list")
@errors_as_exit_codes(EhrError)
def list_keys(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List keys by their prefixes."""
    from model_store.repositories import KeyRepository

    with database_session(data_dir) as session:
        keys = [_shown(key) for key in KeyRepository(session).all()]
    if as_json:
        print_json(keys)
        return
    header = ["id", "prefix", "owner", "name", "scopes", "created", "revoked"]
    print_table(header, [[_cell(value) for value in key.values()] for key in keys])


@cli.command()
@errors_as_exit_codes(EhrError)
def revoke(key_id: Annotated[str, typer.Argument(help="id of a key")], data_dir: DataDir = None) -> None:
    """From now on the key opens nothing."""
    from model_store.repositories import AuditRepository, KeyRepository

    with database_session(data_dir) as session:
        key = KeyRepository(session).revoke(key_id)
        AuditRepository(session).record(key.owner, "revoke key", key_id, key.prefix)
        is_last = not KeyRepository(session).any_active()
    say(f"{key_id} revoked")
    if is_last:
        say("It was the last one: the service stays closed to everyone until 'ehr-d3pm keys create' makes another.")


@cli.command()
@errors_as_exit_codes(EhrError)
def caps(
    key_id: Annotated[str, typer.Argument(help="id of a key")],
    conditions: Annotated[int | None, typer.Option(min=0, help="distinct conditions of one model")] = None,
    small_conditions: Annotated[int | None, typer.Option(min=0, help="those that hardly any patient satisfies")] = None,
    records: Annotated[int | None, typer.Option(min=0, help="synthetic records of one model")] = None,
    general: Annotated[
        bool, typer.Option("--general", help="take back the key's own: the settings' hold again")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Change how much a key may have of each model. What is left out stays as it is."""
    from model_store.repositories import AuditRepository, KeyRepository

    given = {"conditions": conditions, "small_conditions": small_conditions, "records": records}
    changed = {name: value for name, value in given.items() if value is not None}
    if general == bool(changed):
        fail("say which caps to change, or --general to take the key's own back", Exit.USAGE)
    with database_session(data_dir) as session:
        key = KeyRepository(session).change_caps(key_id, None if general else changed)
        AuditRepository(session).record(key.owner, "change caps", key_id, key.prefix, changed)
        own = dict(key.caps or {})
    say(f"{key_id}: {', '.join(f'{name} {value:,}' for name, value in own.items()) or 'as the settings say'}")


def _shown(key: "ApiKey") -> dict[str, object]:
    plain = {name: getattr(key, name) for name in ("id", "prefix", "owner", "name", "scopes")}
    return plain | {"created_at": _moment(key.created_at), "revoked_at": _moment(key.revoked_at)}


def _cell(value: object) -> str:
    return ",".join(value) if isinstance(value, list) else str(value or "")


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
