"""Run an EHR-D3PM service, and use it from a terminal or a script.

Exit codes: 0 done; 1 the job failed or was cancelled; 2 wrong usage; 3 the service cannot be reached; 4 the service
refused the request; 5 the service failed; 130 interrupted.
"""

from typing import Annotated

import typer

from ehr_d3pm.cli import choices, codes, cohorts, datasets, exposure, jobs, models, reports
from ehr_d3pm.cli.output import errors_as_exit_codes
from ehr_d3pm.cli.service_commands import WithServiceCommands

cli = typer.Typer(
    cls=WithServiceCommands,
    help=__doc__,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@cli.callback()
def connection(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(envvar="EHR_D3PM_URL", help="address of the service")] = None,
    key: Annotated[str | None, typer.Option(envvar="EHR_D3PM_KEY", help="API key")] = None,
) -> None:
    context.obj = (url, key)


for command in (
    datasets.upload,
    codes.codes,
    models.train,
    cohorts.estimate,
    cohorts.generate,
    cohorts.download,
    cohorts.release,
    reports.report,
    reports.evaluate,
    exposure.exposure,
    exposure.audit,
    jobs.jobs,
    jobs.job,
    jobs.cancel,
    jobs.retry,
    choices.generators,
    choices.formats,
):
    cli.command()(errors_as_exit_codes()(command))
cli.add_typer(datasets.cli, name="datasets")
cli.add_typer(models.cli, name="models")
cli.add_typer(cohorts.cli, name="cohorts")


def main() -> None:
    """The console script."""
    cli()
