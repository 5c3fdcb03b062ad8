"""Run an EHR-D3PM service, and use it from a terminal or a script.

Exit codes: 0 done; 1 the job failed or was cancelled; 2 wrong usage; 3 the service cannot be reached; 4 the service
refused the request; 5 the service failed; 6 what --fail-on names is the case; 130 interrupted.
"""

from contextlib import suppress
from typing import Annotated

import typer

from ehr_d3pm.cli import choices, codes, cohorts, datasets, exposure, jobs, models, places, probes, reports, webhooks
from ehr_d3pm.cli.output import errors_as_exit_codes, say
from ehr_d3pm.cli.service_commands import WithServiceCommands

cli = typer.Typer(
    cls=WithServiceCommands,
    help=__doc__,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _versions(wanted: bool) -> None:
    """Of the client, and of the service if it is installed here."""
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    for name in ("ehr-d3pm-client", "ehr-d3pm"):
        with suppress(PackageNotFoundError):
            say(f"{name} {version(name)}")
    raise typer.Exit


@cli.callback()
def connection(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(envvar="EHR_D3PM_URL", help="address of the service")] = None,
    key: Annotated[str | None, typer.Option(envvar="EHR_D3PM_KEY", help="API key")] = None,
    _version: Annotated[bool, typer.Option("--version", callback=_versions, is_eager=True, help="and end")] = False,
) -> None:
    context.obj = (url, key)


for command in (
    datasets.upload,
    codes.codes,
    models.train,
    cohorts.estimate,
    probes.probe,
    cohorts.generate,
    cohorts.download,
    places.export,
    cohorts.release,
    reports.report,
    reports.evaluate,
    exposure.exposure,
    exposure.budgets,
    exposure.audit,
    jobs.jobs,
    jobs.job,
    jobs.cancel,
    jobs.retry,
    choices.generators,
    choices.formats,
    places.places,
):
    cli.command()(errors_as_exit_codes()(command))
cli.add_typer(datasets.cli, name="datasets")
cli.add_typer(models.cli, name="models")
cli.add_typer(cohorts.cli, name="cohorts")
cli.add_typer(webhooks.cli, name="webhooks")


def main() -> None:
    """The console script."""
    cli()
