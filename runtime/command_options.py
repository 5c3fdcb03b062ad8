"""What the commands that run the service share. Light on purpose: `ehr-d3pm --help` imports it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from runtime.settings import Settings

DataDir = Annotated[Path | None, typer.Option(help="folder of everything that lasts [default: ./ehr-d3pm-data]")]
Host = Annotated[str | None, typer.Option(help="address to bind to; other than loopback needs API keys")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="port to bind to")]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error")]


def settings_with(**changes: Any) -> "Settings":
    """The environment's settings with the options that were given."""
    from runtime.settings import Settings

    return Settings(**{name: value for name, value in changes.items() if value is not None})
