"""Generators of other makers, as they ship them, beside ours: same records, same cores, same minutes of training.

python -m benchmarks.peers --data DIR --budget MINUTES [--seeds 3] [--work DIR] [--only NAME ...] [--json FILE]

Each package gets a virtual environment of its own in --work, made from the package index, and is driven there by a
script that knows files only. Finished cells are kept in --work: a run that was stopped goes on where it was. Attacks on
privacy are run only on data that may be attacked (benchmarks/paper/measure.py). Where a peer leads, it says so.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks._harness import Figures, console, load_long, options, show, subset
from benchmarks.paper.contenders import ALL, Arena, arenas
from benchmarks.paper.measure import MAY_BE_ATTACKED
from benchmarks.paper.store import Store
from benchmarks.peers.cells import METRICS, Bench, cores, plan
from benchmarks.peers.leads import TITLES, cost_rows, figures, leads, privacy_rows, quality_rows
from ehr.vocabulary import Vocabulary
from worker.engine.metrics.air import columns
from worker.engine.population import simulated_population
from worker.evaluation import labels_in

SIMULATED = "simulated"
HOLDOUT_SHARE = 0.05
MINUTES, QUICK_MINUTES, SEEDS = 15.0, 0.05, 3
QUICK_CODES = 20  # a table of hundreds of columns takes a peer longer to look at than a quick look may
WORK = Path(tempfile.gettempdir()) / "ehr-d3pm-peers"


def main() -> None:
    arguments = _arguments()
    benches = [_bench(arguments, seed) for seed in range(1 if arguments.quick else arguments.seeds)]
    for bench in benches:
        tasks = [task for task in plan(bench) if arguments.only is None or task.asked_for(arguments.only)]
        for number, task in enumerate(tasks, start=1):
            if not bench.store.has(task.name):
                console.print(f"seed {bench.seed}, {number} of {len(tasks)}: {task.name}", highlight=False)
                bench.store.run(task)
    _show(benches)
    results = Figures()
    for name, value, unit in figures(benches):
        results.add(name, value, unit)
    results.finish(arguments.json)


def _show(benches: list[Bench]) -> None:
    first = benches[0]
    about = f"{first.data}, {first.seconds / 60:g} minutes of training, {cores()} cores, {len(benches)} seeds"
    header = ["", *(TITLES[metric] for metric in METRICS)]
    show(f"quality: {about}; {first.sizes.records:,} records", header, quality_rows(benches))
    timing = [
        "",
        "training s",
        "records / s",
        f"s for {first.sizes.conditioned:,} with a 0.3 % code",
        "of them have it",
        "",
    ]
    show("costs", timing, cost_rows(benches))
    if first.data in MAY_BE_ATTACKED:
        show("privacy: gain over the control", ["", "membership", "attribute"], privacy_rows(benches))
    for lead in leads(benches):
        who = "ours leads" if lead.is_ours else f"{lead.peer} LEADS"
        told = f"{TITLES[lead.metric]}: {who} (ours {lead.ours:.4g}, best peer {lead.best:.4g}, {lead.peer})"
        console.print(told, highlight=False)


def _arguments() -> argparse.Namespace:
    parser = options(__doc__ or "", data=True)
    parser.add_argument("--budget", type=float, default=MINUTES, metavar="MINUTES", help="of training, for each")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"trainings of each; default: {SEEDS}")
    parser.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="environments, cells, models, cohorts")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only cells of these kinds or rows")
    return parser.parse_args()


def _bench(arguments: argparse.Namespace, seed: int) -> Bench:
    quick = arguments.quick
    # the name decides what may be attacked: a link by another name does not change it
    data = SIMULATED if arguments.data is None else arguments.data.resolve().name
    minutes = QUICK_MINUTES if quick else arguments.budget
    store = Store.of(arguments.work, data, minutes, seed, quick)
    return Bench(store, arguments.work, data, 60 * minutes, seed, quick, lambda: _load(arguments.data, quick))


def _load(folder: Path | None, quick: bool) -> Arena:
    if folder is not None:
        train, test, codes = load_long(folder)
    else:
        population = simulated_population()
        train, test = (population.sample(n, np.random.default_rng(n)) for n in (50_000, 25_000))
        codes = list(population.vocabulary)
    if quick:
        train, test = subset(train, 1_500), subset(test, 1_000)
        common = np.sort(np.argsort(-train.prevalence(), kind="stable")[:QUICK_CODES])
        train, test = (columns(records, common) for records in (train, test))
        codes = [codes[code] for code in common]
    order = np.random.default_rng(0).permutation(len(train))
    border = int(HOLDOUT_SHARE * len(train))
    labels = labels_in(Vocabulary(tuple(codes)))[: 1 if quick else None]
    return arenas(train.take(order[border:]), train.take(order[:border]), test, labels)[ALL]


if __name__ == "__main__":
    main()
