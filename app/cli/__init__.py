"""`ehr-d3pm`: run the service, and use it from a terminal or a script.

Exit codes: 0 done; 1 the job failed or was cancelled; 2 wrong usage; 3 the service cannot be reached; 4 the service
refused the request; 5 the service failed; 130 interrupted.
"""

from typing import Annotated

import typer

from app.cli import demo, keys, reports, running, work
from app.cli.output import Connection, errors_as_exit_codes

cli = typer.Typer(
    help=__doc__,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@cli.callback()
def connection(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(envvar="EHR_D3PM_URL", help="where the service is")] = None,
    key: Annotated[str | None, typer.Option(envvar="EHR_D3PM_KEY", help="API key")] = None,
) -> None:
    context.obj = Connection(url, key)


COMMANDS = (
    running.serve,
    running.api,
    running.worker,
    running.migrate,
    demo.demo,
    work.upload,
    work.train,
    work.generate,
    work.estimate,
    work.jobs,
    work.job,
    work.cancel,
    work.retry,
    work.download,
    reports.report,
    reports.evaluate,
    reports.release,
)
for command in COMMANDS:
    cli.command()(errors_as_exit_codes(command))
cli.add_typer(keys.cli, name="keys")


def main() -> None:
    """The console script."""
    cli()
