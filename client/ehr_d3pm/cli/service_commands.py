"""Commands that need the service itself, such as `serve`. It offers them under an entry-point group, so that the client
knows none of them and loads them only when one is asked for."""

from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from ehr_d3pm.cli.output import Exit, fail

GROUP = "ehr_d3pm.commands"


class WithServiceCommands(TyperGroup):
    """The client's commands, then those of the service if it is installed."""

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=GROUP)}

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *self._offered]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in self._offered:
            return _loaded(self._offered[cmd_name])
        if found is None and not self._offered:
            message = "commands that run or administer the service come with the distribution ehr-d3pm: install it too"
            fail(f"the client has no command '{cmd_name}'; {message}", Exit.USAGE)
        return found


def _loaded(entry: EntryPoint) -> Any:
    """A function becomes a command, a Typer application a group of them."""
    found = entry.load()
    if isinstance(found, typer.Typer):
        command = typer.main.get_command(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(entry.name)(found)
        command = typer.main.get_command(alone)
    command.name = entry.name
    return command
