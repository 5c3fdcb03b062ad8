"""The paper's tables, side by side with its baselines, every generator with the same wall-clock training budget.

python -m benchmarks.paper --data DIR --budget MINUTES [--work DIR] [--out DIR] [--json FILE]

Finished cells are kept in --work and not made again, so that a run that was stopped goes on where it was. Attacks on
privacy are run only on data that is named in _paper_measure.MAY_BE_ATTACKED.
"""

import argparse
import atexit
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks._harness import Figures, console, load_long, options, show, subset
from benchmarks._paper_contenders import Arena, arenas
from benchmarks._paper_pages import unpacked, write_results
from benchmarks._paper_plan import DRAWING, RUN, Bench, plan
from benchmarks._paper_store import Store, Task
from benchmarks._paper_tables import tables
from benchmarks._paper_train import machine
from benchmarks._paper_wins import MissingCellsError, figures, unfinished
from ehr.vocabulary import Vocabulary
from worker.engine.metrics.utility import TRAININGS_AT_A_TIME
from worker.engine.population import simulated_population
from worker.evaluation import labels_in

SIMULATED = "simulated"
HOLDOUT_SHARE = 0.05
MINUTES, SEED = 3.0, 0
QUICK_MINUTES, QUICK_DRAWING = 0.01, 0.1
RESULTS = Path("docs/results")
WORK = Path(tempfile.gettempdir()) / "ehr-d3pm-paper"
# Seconds a cell takes, until one of its kind has been timed; training and sampling are bounded by the budget.
GUESSED_SECONDS = {
    "memory": 10.0,
    "fidelity": 8.0,
    "utility": 6.0,
    "guided": 30.0,
    "pool": 10.0,
    "augmentation": 4.0,
    "privacy": 30.0,
}


def main() -> None:
    arguments = _arguments()
    bench = _bench(arguments)
    out = arguments.out or _out(bench, arguments)
    if arguments.report_only:
        bench = _finished(bench, arguments, out)
    else:
        command = shlex.join(["python", "-m", "benchmarks.paper", *_without_places(arguments, bench)])
        facts = {"minutes": bench.minutes, "seed": bench.seed, "drawing": bench.drawing, "command": command}
        bench.begin(facts | {"machine": machine()} | vars(bench.sizes))
        run_all(bench, arguments.only)
    for table in tables(bench):
        show(table.title, table.header, table.rows)
    results, missing = Figures(), None
    try:
        for name, value, unit in figures(bench):
            results.add(name, value, unit)
    except MissingCellsError as error:
        missing = error
    if arguments.out is not None or not arguments.report_only:  # reading shall not replace what is there
        write_results(bench, out, results.rows, unfinished(bench))
        console.print(f"written to {out}")
    partial = arguments.quick or arguments.only is not None  # asked not to finish
    if missing is not None and (arguments.report_only or not partial):
        sys.exit(str(missing))
    results.finish(arguments.json)


def _out(bench: Bench, arguments: argparse.Namespace) -> Path:
    """Where the tables are. Those of a part of the cells or of another run do not replace what is there."""
    kept, own = RESULTS / bench.data, bench.store.folder / "results"
    if bench.quick:
        return own
    if arguments.report_only:
        return kept
    return own if arguments.only is not None or _of_another_run(kept / "results.json", bench) else kept


def _of_another_run(results: Path, bench: Bench) -> bool:
    if not results.exists():
        return False
    run = json.loads(results.read_text(encoding="utf-8"))["run"]
    return (run["minutes"], run["seed"]) != (bench.minutes, bench.seed)


def _finished(bench: Bench, arguments: argparse.Namespace, out: Path) -> Bench:
    """The run whose cells are in the work folder or, where that has none, in the results that were written from it."""
    if bench.store.has(RUN):
        return bench
    results = out / "results.json"
    if not results.exists():
        sys.exit(f"there are no cells in {bench.store.folder}, and no {results}")
    console.print(f"no cells in {bench.store.folder}: reading those of {results}")
    folder = tempfile.mkdtemp(prefix="ehr-d3pm-paper-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    found = unpacked(results, bench, Path(folder))
    for asked, had in ((arguments.budget, found.minutes), (arguments.seed, found.seed)):
        if asked not in (None, had):
            sys.exit(f"{results} is of another run, with {found.minutes:g} minutes of training and seed {found.seed}")
    return found


def _arguments() -> argparse.Namespace:
    parser = options(__doc__ or "", data=True)
    budget = f"training time of each generator; default: {MINUTES:g}"
    parser.add_argument("--budget", type=float, metavar="MINUTES", help=budget)
    limit = f"who would draw longer is not compared; default: {DRAWING:g}"
    parser.add_argument("--drawing", type=float, default=DRAWING, metavar="MINUTES", help=limit)
    parser.add_argument("--work", type=Path, metavar="DIR", help=f"cells, models and cohorts; default: {WORK}")
    places = f"{RESULTS}/DATA, or the work folder where that has another run or not all was asked for"
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"tables and pictures; default: {places}")
    parser.add_argument("--seed", type=int, help=f"default: {SEED}")
    parser.add_argument("--report-only", action="store_true", help="read the finished cells and make nothing")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only cells of these kinds or generators")
    return parser.parse_args()


def _bench(arguments: argparse.Namespace) -> Bench:
    quick = arguments.quick
    asked = MINUTES if arguments.budget is None else arguments.budget
    minutes, seed = QUICK_MINUTES if quick else asked, SEED if arguments.seed is None else arguments.seed
    # The name decides what may be attacked: a link by another name does not change it.
    data = SIMULATED if arguments.data is None else arguments.data.resolve().name
    # A quick look shall see that it runs, so it finds nothing done.
    work = arguments.work or (Path(tempfile.mkdtemp(prefix="ehr-d3pm-paper-")) if quick else WORK)
    store = Store.of(work, data, minutes, seed, quick)
    drawing = QUICK_DRAWING if quick else arguments.drawing
    return Bench(store, data, minutes, seed, quick, lambda: _load(arguments.data, quick), drawing)


def _load(folder: Path | None, quick: bool) -> dict[str, Arena]:
    """Train without the records that are held out, holdout, test, and the diseases they have."""
    if folder is not None:
        train, test, codes = load_long(folder)
    else:
        population = simulated_population()
        train, test = (population.sample(n, np.random.default_rng(n)) for n in (50_000, 25_000))
        codes = list(population.vocabulary)
    if quick:
        train, test = subset(train, 2_000), subset(test, 1_000)
    order = np.random.default_rng(0).permutation(len(train))
    border = int(HOLDOUT_SHARE * len(train))
    labels = labels_in(Vocabulary(tuple(codes)))[: 1 if quick else None]
    return arenas(train.take(order[border:]), train.take(order[:border]), test, labels)


def _without_places(arguments: argparse.Namespace, bench: Bench) -> list[str]:
    """The options that another machine needs for the same tables."""
    data = [] if arguments.data is None else ["--data", f"PATH/{bench.data}"]
    size = ["--quick"] if bench.quick else ["--budget", f"{bench.minutes:g}"]
    drawing = [] if bench.quick or bench.drawing == DRAWING else ["--drawing", f"{bench.drawing:g}"]
    return [*data, *size, "--seed", str(bench.seed), *drawing]


# ---- running


def run_all(bench: Bench, only: Sequence[str] | None = None) -> None:
    """Make the cells that are asked for and not finished, after those they need, and tell how long it will take."""
    todo = _todo(bench, plan(bench), only)
    if not todo:
        return
    _ = bench.arenas  # once, before threads ask for it
    clock = _Clock(bench, todo)
    with ThreadPoolExecutor(TRAININGS_AT_A_TIME) as pool:
        for group in _groups(todo):
            for task in pool.map(clock.timed, group) if group[0].beside_others else map(clock.timed, group):
                clock.tell(task)


def _todo(bench: Bench, tasks: Sequence[Task], only: Sequence[str] | None) -> list[Task]:
    named = {task.name: task for task in tasks}
    wanted = [task.name for task in tasks if task.asked_for(only)]
    for name in wanted:  # grows as it is read
        wanted += [need for need in named[name].needs if need not in wanted]
    _forget_outgrown(bench, tasks, wanted)
    return [task for task in tasks if task.name in wanted and not bench.store.has(task.name)]


def _forget_outgrown(bench: Bench, tasks: Sequence[Task], wanted: Sequence[str]) -> None:
    """Wanted cohorts that are absent by a smaller limit than today's, and what was measured of them, are unfinished."""
    found = {task.name for task in tasks if task.name in wanted and _outgrown(bench, task)}
    for task in tasks:  # each after those it needs
        if found.intersection(task.needs):
            found.add(task.name)
    for task in reversed(tasks):  # cohorts last: they tell a run that begins after this one was killed what to forget
        if task.name in found:
            bench.store.forget(task.name)


def _outgrown(bench: Bench, task: Task) -> bool:
    cell = bench.store.find(task.name) if task.kind == "sampling" else None
    if cell is None or "absent" not in cell or "records_per_second" not in cell:
        return False
    needed = bench.sizes.records / cell["records_per_second"] / 60
    return bench.drawing > float(cell.get("limit_minutes", needed))  # cells of earlier versions do not tell their limit


def _groups(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Runs of tasks that may run beside each other; every other task alone."""
    group: list[Task] = []
    for task in tasks:
        if group and not (task.beside_others and group[-1].beside_others):
            yield group
            group = []
        group.append(task)
    if group:
        yield group


class _Clock:
    """Times cells by kind, and from that tells how long the rest will take."""

    def __init__(self, bench: Bench, todo: Sequence[Task]) -> None:
        self.bench, self.left = bench, {task.name: task for task in todo}
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.total = len(todo)

    def timed(self, task: Task) -> Task:
        started = time.perf_counter()
        self.bench.store.run(task)
        self.seconds[task.kind].append(time.perf_counter() - started)
        return task

    def tell(self, task: Task) -> None:
        del self.left[task.name]
        seconds = sum(self._expected(each) for each in self.left.values())
        done = self.total - len(self.left)
        console.print(f"{done} of {self.total}: {task.name}; about {seconds / 60:.0f} minutes left", highlight=False)

    def _expected(self, task: Task) -> float:
        known, budget = self.seconds[task.kind], 60 * self.bench.minutes
        if task.kind == "training":
            return budget
        guess = GUESSED_SECONDS.get(task.kind, budget / 4)
        return (sum(known) / len(known) if known else guess) / (TRAININGS_AT_A_TIME if task.beside_others else 1)


if __name__ == "__main__":
    main()
