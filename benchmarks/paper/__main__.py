"""The paper's tables, side by side with its baselines, every generator with the same wall-clock training budget.

python -m benchmarks.paper --data DIR --budget MINUTES [--work DIR] [--out DIR] [--json FILE]

Finished cells are kept in --work and not made again, so that a run that was stopped goes on where it was. Attacks on
privacy are run only on data that is named in measure.MAY_BE_ATTACKED.
"""

import argparse
import atexit
import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks._harness import Figures, console, load_long, options, show, subset
from benchmarks.paper.contenders import Arena, arenas
from benchmarks.paper.pages import unpacked, write_results
from benchmarks.paper.plan import DRAWING, RUN, Bench
from benchmarks.paper.run import run_all
from benchmarks.paper.store import Store
from benchmarks.paper.tables import tables
from benchmarks.paper.train import machine
from benchmarks.paper.wins import MissingCellsError, figures, unfinished
from ehr.vocabulary import Vocabulary
from worker.engine.population import simulated_population
from worker.evaluation import labels_in

SIMULATED = "simulated"
HOLDOUT_SHARE = 0.05
MINUTES, SEED = 3.0, 0
QUICK_MINUTES, QUICK_DRAWING = 0.01, 0.1
RESULTS = Path("docs/results")
WORK = Path(tempfile.gettempdir()) / "ehr-d3pm-paper"


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


if __name__ == "__main__":
    main()
