"""Commands that run the service, or parts of it."""

import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.output import Exit, console, fail
from model_store import migrate as migrations
from runtime.settings import Settings

DataDir = Annotated[Path | None, typer.Option(help="folder of everything that lasts [default: ./ehr-d3pm-data]")]
Host = Annotated[str | None, typer.Option(help="address to bind to; other than loopback needs API keys")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="port to bind to")]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error")]


def serve(data_dir: DataDir = None, host: Host = None, port: Port = None, log_level: LogLevel = "warning") -> None:
    """Run everything on this machine: the API, a worker, the database and the broker, until Ctrl-C."""
    from app.server import check_binding
    from worker import embedded

    settings = settings_with(data_dir=data_dir, host=host, port=port)
    migrations.upgrade(settings.resolved_database_url)
    has_keys = check_binding(settings)
    _check_port(settings)
    console.print(f"http://{settings.host}:{settings.port} (docs at /docs, Ctrl-C ends it)", highlight=False)
    console.print(f"data in {settings.resolved_data_dir}", highlight=False, soft_wrap=True)
    if not has_keys:
        console.print("No API key is configured: open to everyone on this machine. 'ehr-d3pm keys create' closes it.")
    embedded.serve(settings, api_command(settings, log_level))


def api(data_dir: DataDir = None, host: Host = None, port: Port = None, log_level: LogLevel = None) -> None:
    """Run the API alone; workers, database and broker are elsewhere (DATABASE_URL, REDIS_URL, STORE_URL)."""
    from app.server import run_api

    level = None if log_level is None else log_level.upper()
    run_api(settings_with(data_dir=data_dir, host=host, port=port, log_level=level))


def worker() -> None:
    """Run a worker alone, on the queues of WORKER_QUEUES."""
    os.execv(sys.executable, [sys.executable, "-m", "worker"])


def migrate() -> None:
    """Bring the database's schema to where this version needs it."""
    migrations.upgrade(settings_with().resolved_database_url)
    console.print(f"the schema is at {migrations.head()}", highlight=False)


def _check_port(settings: Settings) -> None:
    """A supervisor would start an API that cannot bind again and again."""
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            fail(f"cannot bind to {settings.host}:{settings.port}: {error.strerror}; choose another --port", Exit.USAGE)


def settings_with(**changes: Any) -> Settings:
    """The environment's settings with the options that were given."""
    return Settings(**{name: value for name, value in changes.items() if value is not None})


def api_command(settings: Settings, log_level: str | None) -> list[str]:
    """How the supervisor starts the API."""
    command = [sys.executable, "-m", "app.cli", "api", "--host", settings.host, "--port", str(settings.port)]
    return command if log_level is None else [*command, "--log-level", log_level]
