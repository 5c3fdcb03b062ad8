"""Every cell of the comparison: who has learned what, what was drawn, and what was measured of it."""

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from benchmarks._harness import timed
from benchmarks.paper.contenders import Arena
from benchmarks.paper.measure import FIDELITY, MAY_BE_ATTACKED, attacked, fidelity_of, real_cohort, told, utility_of
from benchmarks.paper.store import Cell, Store, Task
from benchmarks.peers.drivers.files import Request
from benchmarks.peers.environments import PEERS, Peer, drive, python_of
from ehr.conditions import Condition
from ehr.generators.auto import Shape
from ehr.generators.config import Config
from ehr.generators.d3pm import D3PM, D3PMConfig
from ehr.generators.spec import DEALT, INDEPENDENTLY
from ehr.records import Records
from worker.engine.generators import FitRequest, Generator, SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.metrics.distinguisher import measure as distinguish
from worker.engine.training import Hooks
from worker.tasks.decide import fitted
from worker.tasks.pace import pace_of

OURS, ALONE, REAL = "d3pm", "d3pm, independent", "real records"
SAMPLING = {OURS: DEALT, ALONE: INDEPENDENTLY}
RARE_SHARE = 0.003  # of the records have the code that conditioned records must have
LEARNING = 0.95  # of the budget; a deadline keeps the rest
WARM_UP = 1024  # records: the first call loads libraries


@dataclass(frozen=True)
class Sizes:
    """How many records are drawn for what."""

    records: int = 25_000
    conditioned: int = 1_000


QUICK = Sizes(600, 20)


@dataclass(frozen=True)
class Bench:
    """A run with one seed."""

    store: Store
    work: Path  # environments are shared by all runs
    data: str
    seconds: float  # of training
    seed: int
    quick: bool
    load: Callable[[], Arena]
    peers: Sequence[Peer] = PEERS

    @cached_property
    def arena(self) -> Arena:
        return self.load()

    @property
    def sizes(self) -> Sizes:
        return QUICK if self.quick else Sizes()

    @cached_property
    def rare_code(self) -> int:
        """The code whose share of the training records is nearest to RARE_SHARE."""
        return int(np.abs(self.arena.train.prevalence() - RARE_SHARE).argmin())

    @property
    def rows(self) -> list[str]:
        return [OURS, ALONE, *(peer.name for peer in self.peers)]


def plan(bench: Bench) -> list[Task]:
    """All cells, each after those it needs."""
    tasks = [Task("model/d3pm", partial(_train_ours, bench), "training", OURS)]
    tasks += [Task(f"cohort/{row}", partial(_draw_ours, bench, row), "sampling", row) for row in (OURS, ALONE)]
    tasks += [Task(f"cohort/{peer.name}", partial(_drive, bench, peer), "peer", peer.name) for peer in bench.peers]
    for row in (REAL, *bench.rows):
        tasks += _measurements(bench, row)
    return tasks


def _measurements(bench: Bench, row: str) -> list[Task]:
    arena, seed = bench.arena, bench.seed
    kinds: dict[str, Callable[[Records], Cell]] = {
        "fidelity": lambda cohort: fidelity_of(cohort, arena, seed),
        "distinguisher": lambda cohort: told(
            distinguish(cohort, arena.test, arena.train, np.random.default_rng([seed, 5]))
        ),
    }
    for label in arena.labels:
        kinds[f"utility/{label.name}"] = partial(_utility, bench, label.name)
    if bench.data in MAY_BE_ATTACKED and row != REAL:
        kinds["privacy"] = lambda cohort: attacked(bench.data, cohort, arena, seed)
    return [
        Task(f"{kind}/{row}", partial(_of_cohort, bench, row, measure), kind.split("/")[0], row)
        for kind, measure in kinds.items()
    ]


def _utility(bench: Bench, name: str, cohort: Records) -> Cell:
    label = next(label for label in bench.arena.labels if label.name == name)
    return utility_of(cohort, label, bench.arena.test, bench.seed)


def _of_cohort(bench: Bench, row: str, measure: Callable[[Records], Cell]) -> Cell:
    """What `measure` finds in the row's cohort, or why there is none."""
    if row == REAL:
        return measure(real_cohort(bench.arena, bench.sizes.records, bench.seed))
    cell = bench.store.read(f"cohort/{row}")
    return {"absent": cell["absent"]} if "absent" in cell else measure(bench.store.load_records(f"cohort/{row}"))


# ---- ours


def _train_ours(bench: Bench) -> Cell:
    """By rule, within the budget, as `auto` of the service does."""
    train, holdout = bench.arena.train, bench.arena.holdout
    assert D3PM.rule is not None
    config = D3PM.rule(Shape(len(train), train.n_codes))
    assert isinstance(config, D3PMConfig)

    def request_of(settings: Config, hooks: Hooks | None = None) -> FitRequest:
        return FitRequest(train, holdout, settings, bench.seed, hooks=hooks or Hooks())

    begun = time.perf_counter()
    sizes = (len(train), len(holdout))
    config, _ = fitted(LEARNING * bench.seconds, config, pace_of(request_of(config)), sizes, request_of)
    hooks = Hooks(should_settle=lambda: time.perf_counter() - begun > LEARNING * bench.seconds)
    generator = D3PMGenerator.fit(request_of(config, hooks))
    bench.store.save_model("model/d3pm", generator)
    return {"train_seconds": time.perf_counter() - begun, "settings": config.model_dump()}


def _draw_ours(bench: Bench, row: str) -> Cell:
    generator, sampling = bench.store.load_model("model/d3pm"), SAMPLING[row]
    generator.sample(SampleRequest(min(WARM_UP, bench.sizes.records), sampling=sampling))
    with timed() as took:
        records = generator.sample(SampleRequest(bench.sizes.records, bench.seed, sampling=sampling))
    bench.store.save_records(f"cohort/{row}", records)
    cell = {"records": len(records), "records_per_second": len(records) / took[0]}
    trained = bench.store.read("model/d3pm")
    return cell | {"train_seconds": trained["train_seconds"]} | _condition_ours(bench, generator, sampling)


def _condition_ours(bench: Bench, generator: Generator, sampling: str) -> Cell:
    condition = Condition.of(bench.arena.train.n_codes, all_of=[bench.rare_code])
    with timed() as took:
        request = SampleRequest(bench.sizes.conditioned, bench.seed, condition, sampling=sampling)
        records = generator.sample(request)
    return {"condition_seconds": took[0], "condition_attained": float(condition.satisfied_by(records).mean())}


# ---- peers


def _drive(bench: Bench, peer: Peer) -> Cell:
    """What a peer has learned and drawn in its own environment, which sees files and nothing else."""
    python = python_of(bench.work, peer)
    if isinstance(python, str):
        return {"absent": python}
    folder = bench.store.folder / "driven" / peer.name.replace(", ", "-").replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    arena, sizes = bench.arena, bench.sizes
    everyone = Records.concatenate([arena.train, arena.holdout])
    np.savez(folder / "train.npz", indptr=everyone.indptr, indices=everyone.indices, n_codes=everyone.n_codes)
    held_out = len(arena.holdout) / len(everyone)
    asked = Request(peer.way, bench.seconds, bench.seed, sizes.records, bench.rare_code, sizes.conditioned, held_out)
    (folder / "request.json").write_text(json.dumps(asdict(asked)), encoding="utf-8")
    refused = drive(python, peer, folder, bench.seconds)
    if refused is not None:
        return refused
    cell: Cell = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    with np.load(folder / "cohort.npz", allow_pickle=False) as arrays:
        cohort = Records(arrays["indptr"], arrays["indices"].astype(np.int32), int(arrays["n_codes"]))
    bench.store.save_records(f"cohort/{peer.name}", cohort)
    shutil.rmtree(folder)
    cell |= {"records": len(cohort), "records_per_second": len(cohort) / cell["sampling_seconds"]}
    return cell | ({} if "condition_seconds" in cell else _by_rejection(bench, cohort, cell["records_per_second"]))


def _by_rejection(bench: Bench, cohort: Records, rate: float) -> Cell:
    """What conditioned records would take by drawing until enough have the code, at the share of the cohort."""
    share = float(cohort.having_any([bench.rare_code]).mean())
    if share == 0:
        return {"condition_note": f"no record of {len(cohort):,} has the code"}
    return {
        "condition_seconds": bench.sizes.conditioned / (rate * share),
        "condition_attained": 1.0,
        "condition_note": "computed: drawing and throwing away",
    }


def cores() -> int:
    return len(os.sched_getaffinity(0))


METRICS = (*FIDELITY, "auroc", "auprc", "distinguisher")
