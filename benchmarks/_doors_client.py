"""How soon a command answers, and how much a machine has to install to use a service elsewhere."""

import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from statistics import median

from benchmarks._harness import Figures, timed

CLIENT = Path(__file__).parents[1] / "client" / "ehr_d3pm"
DIRECT = ("httpx", "rich", "typer")
COMMANDS = (["--version"], ["jobs", "--help"], ["upload", "--help"], ["serve", "--help"], ["keys", "list", "--help"])
MB = 1e6


def command_start(figures: Figures, quick: bool) -> None:
    """The slowest of some commands that ask nobody, each by the median of its runs."""
    slowest = 0.0
    for words in COMMANDS:
        took = []
        for _ in range(1 if quick else 7):
            with timed() as seconds:
                subprocess.run([sys.executable, "-m", "ehr_d3pm", *words], check=True, capture_output=True)
            took += seconds
        slowest = max(slowest, median(took))
    figures.add("cli.start_s", slowest, "s, the slowest command")


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
