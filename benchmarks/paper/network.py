"""The paper's own network on the 100 most common codes, for as long as it may have, beside ours on the same codes.

python -m benchmarks.paper.network --data DIR --budget 120 --drawing 60 --guided 10 [--diseases K] [--this-run MINUTES]
                                [--work DIR]

A few steps are timed, and it is trained with as many as fit into --budget. Training goes on from its last checkpoint
and drawing from its last batch, so the hours may be given in pieces: give the same command again. Records are drawn
as in the paper, with 500 network calls, unconditional and guided by Langevin steps; there are as many of them as fit
into --drawing (and, of each disease that is guided to, into --guided), and real records and ours are measured with as
many.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from benchmarks._harness import Figures, console, options, progress_bar, show, subset, timed
from benchmarks.paper.__main__ import SIMULATED, _load
from benchmarks.paper.contenders import COMMON, OURS, PAPER, YARDSTICK, Arena
from benchmarks.paper.measure import FIDELITY, REAL, _share, fidelity_of, real_cohort
from benchmarks.paper.store import Cell, Store
from ehr.conditions import Condition
from ehr.errors import TrainingStopped
from ehr.generators.config import merged
from ehr.generators.d3pm import D3PM, PRESETS
from ehr.records import Records
from worker.engine.checkpoints import Checkpoint
from worker.engine.generators import FitRequest, Generator, SampleRequest, generator_named
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.training import Hooks, TrainingProgress
from worker.tasks.pace import pace_of

WORK = Path(tempfile.gettempdir()) / "ehr-d3pm-paper-network"
CHECKPOINT_SECONDS = 60.0
CALLS = 500  # of the paper
ROWS, GUIDED_ROWS = 128, 32  # records at a time
NATS_OF = 1000  # unseen records
FEWEST = 500  # records, below which correlations say nothing
GUIDED = "guided by Langevin"
# what a quick look changes: it is to see that it runs
QUICK: dict[str, Any] = {
    "timesteps": 8,
    "denoiser": {"width": 16, "layers": 1, "heads": 2, "projection": 8},
    "training": {"epochs": 2, "batch_size": 64},
}


@dataclass(frozen=True)
class Bench:
    """Where its pieces are, and what it may take."""

    store: Store
    arena: Arena
    settings: dict[str, Any]
    training: float  # seconds in all
    this_run: float  # of them, in this run
    drawing: float
    guided: float
    diseases: int | None  # that are guided to; None: all
    quick: bool

    @property
    def calls(self) -> int:
        return min(CALLS, int(self.settings["timesteps"]))


def main() -> None:
    arguments = _arguments()
    data = SIMULATED if arguments.data is None else arguments.data.resolve().name
    arena = _load(arguments.data, arguments.quick)[COMMON]
    settings = merged(PRESETS["paper-mimic"].model_dump(), QUICK if arguments.quick else {})
    work = Path(tempfile.mkdtemp()) if arguments.quick else arguments.work
    given = (arguments.budget, arguments.this_run, arguments.drawing, arguments.guided)
    training, this_run, drawing, guided = (
        60 * each for each in ((0.05, 1e6, 0.01, 0.01) if arguments.quick else given)
    )
    bench = Bench(
        Store(work / data), arena, settings, training, this_run, drawing, guided, arguments.diseases, arguments.quick
    )
    trained = train(bench)
    if trained is None:
        console.print("the time is up: give the same command again to go on")
        return
    measure(bench, trained, Figures(), arguments.json)


# ---- training, in pieces


def train(bench: Bench) -> Generator | None:
    """The network after all its steps, or None if this run's time was up before; then a checkpoint is kept."""
    if bench.store.has("trained"):
        return bench.store.load_model("model")
    plan = _plan(bench)
    saved = time.monotonic()
    begun, before = saved, (bench.store.find("progress") or {}).get("seconds", 0.0)

    def keep(checkpoint: Checkpoint) -> None:
        nonlocal saved
        if time.monotonic() - saved > CHECKPOINT_SECONDS or over():
            saved = time.monotonic()
            _save_checkpoint(bench.store, checkpoint, before + saved - begun)

    def over() -> bool:
        return time.monotonic() - begun > bench.this_run

    with progress_bar("training") as advance:

        def tell(progress: TrainingProgress) -> None:
            advance(progress.step, progress.total_steps)

        settings = merged(bench.settings, {"training": {"checkpoint_every": 1, "epochs": plan["epochs"]}})
        # one pass has no better epoch to go back to
        holdout = bench.arena.holdout if plan["epochs"] > 1 else None
        some = subset(bench.arena.train, plan["records"])
        request = FitRequest(some, holdout, settings, hooks=Hooks(tell, keep, over))
        try:
            generator = D3PMGenerator.fit(_resumed(bench.store, request))
        except TrainingStopped:
            return None
    bench.store.save_model("model", generator)
    bench.store.write("trained", {"seconds": before + time.monotonic() - begun, "curve": generator.curve})
    return generator


def _plan(bench: Bench) -> Cell:
    """How many epochs over how many records fit into the time; decided once, whatever the machine does later."""
    known = bench.store.find("plan")
    if known is None:
        train, pace = bench.arena.train, pace_of(FitRequest(bench.arena.train, None, bench.settings))
        steps, per_epoch = max(int(bench.training / pace.step), 1), max(len(train) // pace.batch, 1)
        epochs = min(max(steps // per_epoch, 1), bench.settings["training"]["epochs"])
        known = {"epochs": epochs, "records": min(steps * pace.batch, len(train)), "step_seconds": pace.step}
        bench.store.write("plan", known)
    return known


def _save_checkpoint(store: Store, checkpoint: Checkpoint, seconds: float) -> None:
    """Tensors first: the cell that names them comes when they are whole."""
    store.folder.mkdir(parents=True, exist_ok=True)
    name = f"checkpoint-{checkpoint.values['step']}.safetensors"
    save_file({key: value.contiguous() for key, value in checkpoint.tensors.items()}, store.folder / name)
    older = (store.find("progress") or {}).get("tensors")
    store.write("progress", {"tensors": name, "values": json.dumps(checkpoint.values), "seconds": seconds})
    if older is not None and older != name:
        (store.folder / older).unlink(missing_ok=True)


def _resumed(store: Store, request: FitRequest) -> FitRequest:
    kept = store.find("progress")
    if kept is None:
        return request
    checkpoint = Checkpoint(load_file(store.folder / kept["tensors"]), json.loads(kept["values"]))
    return FitRequest(
        request.train, request.holdout, request.settings, request.seed, hooks=request.hooks, checkpoint=checkpoint
    )


# ---- drawing, in pieces


def drawn(bench: Bench, generator: Generator, name: str, condition: Condition | None) -> tuple[Records, float]:
    """As many records as fit into the time, a batch after the other, and how many in a second; those of earlier runs
    count."""
    rows, most = (ROWS, bench.drawing) if condition is None else (GUIDED_ROWS, bench.guided)
    parts, seconds, begun, number = [], 0.0, time.monotonic(), 0
    while number == 0 or time.monotonic() - begun < most:
        key = f"drawn/{name}/{number}"
        if not bench.store.has(key):
            method = "auto" if condition is None else "langevin"
            with timed() as took:
                records = generator.sample(SampleRequest(rows, number, condition, method=method, steps=bench.calls))
            bench.store.save_records(key, records)
            bench.store.write(key, {"seconds": took[0]})
        parts.append(bench.store.load_records(key))
        seconds, number = seconds + bench.store.read(key)["seconds"], number + 1
    return Records.concatenate(parts), number * rows / seconds


# ---- what it gives


def measure(bench: Bench, generator: Generator, figures: Figures, path: Path | None) -> None:
    our_generator = _ours(bench)
    independent = generator_named(YARDSTICK).fit(FitRequest(bench.arena.train))
    _nats(bench, {PAPER: generator, OURS: our_generator, YARDSTICK: independent}, figures)
    paper, rate = drawn(bench, generator, "unconditional", None)
    n = len(paper)
    with timed() as took:
        ours = our_generator.sample(SampleRequest(n))
    floor = real_cohort(bench.arena, n, 0)
    cohorts = {f"{REAL} records": floor, PAPER: paper, OURS: ours, YARDSTICK: independent.sample(SampleRequest(n))}
    found = {name: fidelity_of(cohort, bench.arena, 0) for name, cohort in cohorts.items()}
    rows = [[name, *(_text(cell[metric]) for metric in FIDELITY)] for name, cell in found.items()]
    show(f"the {bench.arena.train.n_codes} most common codes, {n:,} records each", ["", *FIDELITY.values()], rows)
    trained = bench.store.find("trained") or {}
    costs = [
        [PAPER, f"{trained.get('seconds', 0):.0f}", f"{rate:.3g}", str(bench.calls)],
        [
            OURS,
            f"{bench.store.read('ours')['seconds']:.0f}",
            f"{n / took[0]:.3g}",
            str(our_generator.steps_of(SampleRequest(n))),
        ],
    ]
    show("costs", ["", "training s", "records / s", "network calls"], costs)
    _guided(bench, generator, paper)
    if n >= FEWEST or bench.quick:
        ratio = found[PAPER]["cmd"]["value"] / found[f"{REAL} records"]["cmd"]["value"]
        figures.add("paper_network.cmd_ratio_100", ratio, f"over real records, {n:,} records")
    figures.add("paper_network.train_seconds", trained.get("seconds", float("nan")), "s")
    figures.finish(path)


def _nats(bench: Bench, generators: Mapping[str, Generator], figures: Figures) -> None:
    """How likely each finds unseen records: told before any is drawn, which takes an hour."""
    some, rows = subset(bench.arena.test, 64 if bench.quick else NATS_OF), []
    for name, generator in generators.items():
        log_loss = generator.log_loss()
        assert log_loss is not None
        nats, error = log_loss(some)
        rows.append([name, f"{nats:.2f}", f"{error:.2f}"])
        if name in (PAPER, OURS):
            figures.add(f"paper_network.nats{'' if name == PAPER else '_ours'}", nats, "nats")
    show(f"nats of {len(some):,} unseen records", ["", "mean", "standard error"], rows)


def _ours(bench: Bench) -> Generator:
    """Preset `fast` on the same codes."""
    settings = D3PM.changed(PRESETS["fast"], {"training": {"epochs": 2}} if bench.quick else {}).values
    if not bench.store.has("ours"):
        with timed() as took:
            generator = D3PMGenerator.fit(FitRequest(bench.arena.train, bench.arena.holdout, settings))
        bench.store.save_model("model-ours", generator)
        bench.store.write("ours", {"seconds": took[0]})
    return bench.store.load_model("model-ours")


def _guided(bench: Bench, generator: Generator, unconditional: Records) -> None:
    """The share of records with each disease: real, unconditional, and guided as in the paper."""
    rows = []
    for label in bench.arena.labels[: bench.diseases]:
        condition = Condition.of(bench.arena.train.n_codes, any_of=[label.codes])
        guided, _ = drawn(bench, generator, f"guided-{label.name}", condition)
        shares = (_share(label, bench.arena.test, protected=True), _share(label, unconditional), _share(label, guided))
        rows.append([label.name, *(_text(cell) for cell in shares), f"{len(guided):,}"])
    if rows:
        show("share of records with the disease", ["", "real", "unconditional", GUIDED, "records"], rows)


def _text(cell: Cell) -> str:
    return f"{cell['value']:.4g}" if "value" in cell else "-"


def _arguments() -> argparse.Namespace:
    parser = options(__doc__ or "", data=True)
    parser.add_argument("--budget", type=float, default=60.0, metavar="MINUTES", help="of training in all")
    parser.add_argument("--this-run", type=float, default=1e6, metavar="MINUTES", help="of training in this run")
    parser.add_argument("--drawing", type=float, default=45.0, metavar="MINUTES", help="of unconditional drawing")
    parser.add_argument("--guided", type=float, default=5.0, metavar="MINUTES", help="of drawing, for each disease")
    parser.add_argument("--diseases", type=int, metavar="K", help="guide to so many, the first of the list; all")
    parser.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="checkpoints, records, figures")
    return parser.parse_args()


if __name__ == "__main__":
    main()
