"""The store beside the database. Works on both themselves: whoever may run it is trusted."""

from typing import Annotated

import typer

from app.commands.database import DataDir
from ehr.errors import EhrError
from ehr_d3pm.cli.output import AsJson, errors_as_exit_codes, print_json, say
from runtime.command_options import settings_with

HOURS = 24.0


@errors_as_exit_codes(EhrError)
def scrub(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only look; without it leftovers are removed")] = False,
    older_than: Annotated[float, typer.Option(min=0, help="hours; younger blobs may still be in the making")] = HOURS,
    verify: Annotated[bool, typer.Option("--verify", help="read every blob and compare its hash")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Find blobs that nobody needs, and rows that miss theirs.

    Rows whose blobs are missing or changed end in exit code 1.

    After a restore: scrub --dry-run --verify.
    """
    from dataclasses import asdict

    from model_store import migrate
    from model_store.blobs import open_store
    from model_store.database import Database
    from model_store.scrub import scrub as compare

    settings = settings_with(data_dir=data_dir)
    database = Database(settings.resolved_database_url, timeouts=settings.database_timeouts)
    try:
        migrate.check(database.engine)
        store = open_store(settings.resolved_store_url, settings.scratch_dir)
        found = compare(database, store, older_than * 3600, verify=verify, remove=not dry_run)
    finally:
        database.close()
    if as_json:
        print_json(asdict(found))
    else:
        for blob in found.leftovers:
            say(f"{'leftover' if dry_run else 'removed'}: {blob.key} ({blob.size:,} bytes)")
        for fault in found.lost:
            say(f"{fault.fault}: {fault.key} of {fault.thing}")
        size = sum(blob.size for blob in found.leftovers)
        say(f"{found.blobs:,} blobs; {len(found.leftovers):,} leftovers ({size:,} bytes), {len(found.lost):,} faults")
    if found.lost:
        raise typer.Exit(1)
