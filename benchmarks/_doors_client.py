"""How soon a command answers, and how much a machine has to install to use a service elsewhere."""

import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from statistics import median
from typing import Any

import typer

from benchmarks._harness import Figures, progress_bar, timed
from ehr_d3pm.cli import cli

CLIENT = Path(__file__).parents[1] / "client" / "ehr_d3pm"
DIRECT = ("httpx", "rich", "typer")
SOME = (["--version"], ["jobs", "--help"], ["upload", "--help"], ["serve", "--help"], ["keys", "list", "--help"])
MB = 1e6


def command_start(figures: Figures, quick: bool) -> None:
    """The slowest of all commands, each by the median of its runs; by the clock, and by the processor's time."""
    walls, processor = [], []
    commands = SOME if quick else [["--version"], ["--help"], *([*words, "--help"] for words in _commands())]
    with progress_bar("commands") as told:
        for number, words in enumerate(commands):
            told(number, len(commands))
            runs = [_run(words) for _ in range(1 if quick else 3)]
            walls.append(median(wall for wall, _ in runs))
            processor.append(median(seconds for _, seconds in runs))
    figures.add("cli.commands", len(commands), "")
    figures.add("cli.start_s", max(walls), "s, the slowest command")
    figures.add("cli.start_cpu_s", max(processor), "s of the processor, the slowest command")


def _commands() -> Iterator[list[str]]:
    """Every command of the command line, those of the service too."""

    def below(group: Any, words: list[str]) -> Iterator[list[str]]:
        for name in group.list_commands(None):
            command = group.get_command(None, name)
            yield [*words, name]
            if hasattr(command, "list_commands"):
                yield from below(command, [*words, name])

    yield from below(typer.main.get_command(cli), [])


def _run(words: list[str]) -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with timed() as seconds:
        subprocess.run([sys.executable, "-m", "ehr_d3pm", *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds[0], after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def install_size(figures: Figures, _: bool) -> None:
    """The client and all distributions it needs, as they lie on the disk."""
    size = sum(path.stat().st_size for path in CLIENT.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    figures.add("client.install_mb", (size + sum(map(_size, _needed(DIRECT)))) / MB, "MB")


def _needed(names: tuple[str, ...]) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform or version of Python
        wanted = [each for each in found[name].requires or [] if "extra ==" not in each]
        waiting += [re.split(r"[\s\[<>=!~;(]", each, maxsplit=1)[0] for each in wanted]
    return list(found.values())


def _size(installed: Distribution) -> int:
    paths = (Path(str(installed.locate_file(each))) for each in installed.files or [])
    return sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file())
