"""Run everything on this machine, or a worker alone."""

import os
import shlex
import socket
import sys
from typing import TYPE_CHECKING

from ehr.errors import EhrError
from ehr_d3pm.cli.output import Exit, errors_as_exit_codes, fail, say
from runtime.command_options import DataDir, Host, LogLevel, Port, settings_with

if TYPE_CHECKING:
    from runtime.settings import Settings


@errors_as_exit_codes(EhrError)
def serve(data_dir: DataDir = None, host: Host = None, port: Port = None, log_level: LogLevel = "warning") -> None:
    """Run everything on this machine, until Ctrl-C.

    The API, a worker, the database and the broker.
    """
    from model_store import migrate
    from runtime.binding import check_binding
    from runtime.private_files import keep_private
    from worker import embedded

    settings = settings_with(data_dir=data_dir, host=host, port=port)
    keep_private(settings.resolved_data_dir)
    migrate.upgrade(settings.resolved_database_url)
    is_closed = check_binding(settings)
    _check_port(settings)
    say(f"http://{settings.host}:{settings.port} (docs at /docs, Ctrl-C ends it)")
    say(f"data in {settings.resolved_data_dir}")
    if not is_closed:
        say("No API key is configured: open to everyone on this machine. This closes it:")
        say(f"  {key_command(settings)}")
    embedded.serve(settings, api_command(settings, log_level))


@errors_as_exit_codes(EhrError)
def worker() -> None:
    """Run a worker alone, on the queues of WORKER_QUEUES."""
    os.execv(sys.executable, [sys.executable, "-m", "worker"])


def key_command(settings: "Settings") -> str:
    """What to type for a first key of this service, wherever it is typed."""
    where = "" if settings.database_url else f" --data-dir {shlex.quote(str(settings.resolved_data_dir))}"
    return f"ehr-d3pm keys create --owner me --role custodian{where}"


def _check_port(settings: "Settings") -> None:
    """A supervisor would start an API that cannot bind again and again."""
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            fail(f"cannot bind to {settings.host}:{settings.port}: {error.strerror}; choose another --port", Exit.USAGE)


def api_command(settings: "Settings", log_level: str | None) -> list[str]:
    """How the supervisor starts the API."""
    command = [sys.executable, "-m", "ehr_d3pm", "api", "--host", settings.host, "--port", str(settings.port)]
    return command if log_level is None else [*command, "--log-level", log_level]
