"""Owners: their share of the workers, and what they may have at a time. On the database itself, as `keys`."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.commands.database import DataDir, database_session
from ehr.errors import EhrError
from ehr_d3pm.cli.output import AsJson, Exit, errors_as_exit_codes, fail, print_json, print_table, say
from runtime.command_options import settings_with

if TYPE_CHECKING:
    from model_store.tables import Owner

cli = typer.Typer(help="Show what owners use, and change their limits.", no_args_is_help=True, rich_markup_mode=None)
LIMITED = ("queued_jobs", "running_jobs", "queued_records", "stored_bytes")


@cli.command("list")
@errors_as_exit_codes(EhrError)
def list_owners(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List owners with their weights and, of everything that is limited, what they have and may have."""
    from model_store.repositories import OwnerRepository

    with database_session(data_dir) as session:
        owners = OwnerRepository(session)
        found = [_shown(row, owners.usage(row.owner)) for row in owners.all()]
    if as_json:
        print_json(found)
        return
    header = [name.replace("_", " ") for name in ("owner", "weight", *LIMITED)]
    print_table(header, [list(row.values()) for row in found])


@cli.command("limit")
@errors_as_exit_codes(EhrError)
def limit_owner(
    owner: Annotated[str, typer.Argument(help="whose")],
    weight: Annotated[float | None, typer.Option(min=0.01, max=100, help="share of the workers; 1 is usual")] = None,
    queued_jobs: Annotated[int | None, typer.Option(min=0, help="jobs that wait")] = None,
    running_jobs: Annotated[int | None, typer.Option(min=0, help="jobs that run; others wait")] = None,
    queued_records: Annotated[int | None, typer.Option(min=0, help="synthetic records that are waited for")] = None,
    stored_bytes: Annotated[int | None, typer.Option(min=0, help="in datasets, models, cohorts and uploads")] = None,
    general: Annotated[bool, typer.Option("--general", help="take back what is their own: the settings hold")] = False,
    data_dir: DataDir = None,
) -> None:
    """Change what an owner may have at a time. What is left out stays as it is."""
    from model_store.repositories import AuditRepository, OwnerRepository

    values = (queued_jobs, running_jobs, queued_records, stored_bytes)
    limits = {name: value for name, value in zip(LIMITED, values, strict=True) if value is not None}
    if general == bool(limits or weight is not None):
        fail("say what to change, or --general to take back what is their own", Exit.USAGE)
    with database_session(data_dir) as session:
        changed = dict.fromkeys(LIMITED) if general else limits
        row = OwnerRepository(session).change(owner, 1.0 if general else weight, changed)
        AuditRepository(session).record(owner, "change limits", owner, detail={**limits, "weight": row.weight})
        own = {name: getattr(row, name) for name in LIMITED if getattr(row, name) is not None}
    told = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in own.items()) or "as the settings say"
    say(f"{owner}: weight {row.weight:g}, {told}")


def _shown(row: "Owner", usage: dict[str, int]) -> dict[str, str]:
    general = settings_with().limits
    most = {name: getattr(general, name) if getattr(row, name) is None else getattr(row, name) for name in LIMITED}
    return {"owner": row.owner, "weight": f"{row.weight:g}"} | {
        name: f"{usage[name]:,} of {most[name]:,}" for name in LIMITED
    }
