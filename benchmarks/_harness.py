"""What all benchmarks share: options, data, figures, tables, progress."""

import argparse
import csv
import gzip
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ehr.records import Records

console = Console(width=None if sys.stdout.isatty() else 140)


def options(description: str, *more: argparse.ArgumentParser, data: bool = False) -> argparse.ArgumentParser:
    """The options every benchmark takes, and those of `more`."""
    parser = argparse.ArgumentParser(description=description, parents=list(more))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as a list of name, value, unit")
    parser.add_argument(
        "--quick", action="store_true", help="under a minute, to see that it runs; figures mean nothing"
    )
    if data:
        parser.add_argument(
            "--data",
            type=Path,
            metavar="DIR",
            help="folder with train.csv.gz and test.csv.gz (record_id,vocabulary,code); default: simulated population",
        )
    return parser


def run_stages(
    description: str, stages: "Mapping[str, Callable[[Figures, bool], None]]", *more: argparse.ArgumentParser
) -> None:
    """A benchmark of several: all of them, or those that `--stage` names. Each is a function of (figures, quick)."""
    parser = options(description, *more)
    parser.add_argument("--stage", choices=list(stages), action="append", help="only this one; may be repeated")
    arguments = parser.parse_args()
    figures = Figures()
    for name in arguments.stage or stages:
        stages[name](figures, arguments.quick)
    figures.finish(arguments.json)


@dataclass
class Figures:
    """Named results, printed and written as JSON."""

    rows: list[dict[str, object]] = field(default_factory=list)

    def add(self, name: str, value: float, unit: str) -> None:
        """A result that is not a number is no result, and JSON has no word for it."""
        if np.isnan(value):
            return
        self.rows.append({"name": name, "value": value, "unit": unit})

    def value(self, name: str) -> float:
        """The newest one of that name."""
        return next(float(str(row["value"])) for row in reversed(self.rows) if row["name"] == name)

    def finish(self, path: Path | None) -> None:
        """Print the figures and write them to `path`."""
        show(
            "figures",
            ["name", "value", "unit"],
            [[str(r["name"]), f"{r['value']:.5g}", str(r["unit"])] for r in self.rows],
        )
        if path is not None:
            path.write_text(json.dumps(self.rows, indent=2) + "\n")


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for position, name in enumerate(header):
        table.add_column(name, justify="left" if position == 0 else "right", no_wrap=position == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the remaining time, as a callable of (done, total)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bars:
        task = bars.add_task(label, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def timed() -> Iterator[list[float]]:
    """The list receives the seconds that passed inside."""
    seconds: list[float] = []
    start = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - start)


def peak_rss_gib() -> float:
    """The most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def load_long(folder: Path) -> tuple[Records, Records, list[str]]:
    """(train, test, vocabulary) from two long tables; the vocabulary is that of both."""
    tables = []
    for name in ("train", "test"):
        with gzip.open(folder / f"{name}.csv.gz", "rt", newline="") as file:
            rows = csv.reader(file)
            next(rows)
            records: dict[str, int] = {}
            tables.append([(records.setdefault(r, len(records)), f"{system}:{code}") for r, system, code in rows])
    vocabulary = sorted({code for table in tables for _, code in table})
    index = {code: position for position, code in enumerate(vocabulary)}
    loaded = []
    for table in tables:
        who, what = zip(*table, strict=True)
        loaded.append(Records.from_pairs(who, [index[code] for code in what], max(who) + 1, len(vocabulary)))
    return loaded[0], loaded[1], vocabulary


def subset(records: Records, n: int) -> Records:
    """The first n records, or all."""
    return records.take(np.arange(min(n, len(records))))
