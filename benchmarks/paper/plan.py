"""Every cell of the tables: what it is called, what it needs, and how it comes about. Planning reads no data."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from benchmarks._harness import progress_bar
from benchmarks.paper.contenders import ALL, COMMON, OURS, Arena, Contender, contenders
from benchmarks.paper.measure import (
    ARMS,
    MAY_BE_ATTACKED,
    REAL,
    UNCONDITIONAL,
    attacked,
    augmented,
    fidelity_of,
    guided_prevalence,
    pool,
    real_cohort,
    utility_of,
)
from benchmarks.paper.store import Cell, Store, Task
from benchmarks.paper.train import (
    draw_plainly,
    draw_within,
    drawing_peak_apart,
    drawing_peak_here,
    train_apart,
    train_here,
)
from worker.engine.generators import Generator
from worker.engine.metrics.classifier import Label

RUN = "run"
DRAWING = 90.0  # minutes a cohort may take, unless told otherwise
ALONE = "alone"  # real records with nothing added
RAREST = "hypertensive heart disease"  # ICD-9 402


@dataclass(frozen=True)
class Sizes:
    """How many records are drawn for what."""

    records: int = 25_000
    guided: int = 2_000
    memory: int = 2_048  # drawing more at a time takes no more memory than their codes
    start: int = 5_000
    added: tuple[int, ...] = (5_000, 10_000, 20_000)
    rarest_seeds: int = 5  # repetitions for the rarest disease, whose areas move most from draw to draw


QUICK = Sizes(512, 64, 64, 500, (500,), 1)


@dataclass(frozen=True)
class Bench:
    """A run: where its cells are, and how to get at the data when a cell has to be made."""

    store: Store
    data: str
    minutes: float  # of training
    seed: int
    quick: bool
    load: Callable[[], dict[str, Arena]]
    drawing: float = DRAWING  # minutes

    @property
    def sizes(self) -> Sizes:
        return QUICK if self.quick else Sizes()

    @cached_property
    def facts(self) -> Cell:
        """What the first run noted about the data and the machine."""
        return self.store.read(RUN)

    @cached_property
    def arenas(self) -> dict[str, Arena]:
        """The data; refused if finished cells are of other data with the same name."""
        loaded = self.load()
        known = self.store.find(RUN)
        if known is not None and known["fingerprint"] != fingerprint(loaded):
            raise SystemExit(f"{self.store.folder} has cells of other data that is called {self.data} too")
        return loaded

    def begin(self, facts: Cell) -> None:
        """Note what the tables are about, if no earlier run has; the command of the run with the largest limit."""
        known = self.store.find(RUN)
        if known is None:
            notes = {"data": self.data, "fingerprint": fingerprint(self.arenas)} | facts
            labels = {name: [label.name for label in arena.labels] for name, arena in self.arenas.items()}
            everyone = self.arenas[ALL]
            sizes = {part: len(getattr(everyone, part)) for part in ("train", "holdout", "test")}
            self.store.write(RUN, notes | sizes | {"codes": everyone.train.n_codes, "labels": labels})
        elif facts["drawing"] >= known.get("drawing", 0.0):
            self.store.write(RUN, known | {name: facts[name] for name in ("drawing", "command")})

    def label(self, arena: str, name: str) -> Label:
        return next(label for label in self.arenas[arena].labels if label.name == name)

    def model(self, arena: str, contender: Contender) -> Generator:
        return self.store.load_model(f"model/{arena}/{contender.trained_as}", contender.redrawn)


def fingerprint(arenas: dict[str, Arena]) -> str:
    """Tells one data set from another."""
    everyone = arenas[ALL]
    parts = [part for records in (everyone.train, everyone.test) for part in (records.indptr, records.indices)]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


def plan(bench: Bench) -> list[Task]:
    """All cells, each after those it needs."""
    tasks = []
    for arena in (ALL, COMMON):
        tasks += [task for row in contenders(arena, bench.quick) for task in _cohort_tasks(bench, arena, row)]
    for arena in (ALL, COMMON):
        tasks += _fidelity_tasks(bench, arena)
    for arena in (ALL, COMMON):
        tasks += _utility_tasks(bench, arena)
    tasks += _guided_tasks(bench) + _augmentation_tasks(bench)
    if bench.data in MAY_BE_ATTACKED:
        tasks += _privacy_tasks(bench)
    return tasks


# ---- models and cohorts


def _cohort_tasks(bench: Bench, arena: str, row: Contender) -> list[Task]:
    model, cohort = f"model/{arena}/{row.trained_as}", f"cohort/{arena}/{row.name}"
    draw = Task(cohort, partial(_draw, bench, arena, row), "sampling", row.name, (model,))
    if row.weights_of is not None:
        return [draw]
    memory = Task(f"memory/{arena}/{row.name}", partial(_memory, bench, arena, row), "memory", row.name, (cohort,))
    return [Task(model, partial(_train, bench, arena, row), "training", row.name), draw, memory]


def _memory(bench: Bench, arena: str, row: Contender) -> Cell:
    """The memory that drawing takes."""
    drawn = bench.store.read(f"cohort/{arena}/{row.name}")
    if "absent" in drawn:
        return {"absent": drawn["absent"]}
    name = f"model/{arena}/{row.name}"
    measure = drawing_peak_here if bench.quick else drawing_peak_apart
    return measure(bench.store.folder, name, bench.sizes.memory, drawn["calls"])


def _train(bench: Bench, arena: str, row: Contender) -> Cell:
    split = f"split/{arena}"
    for part in ("train", "holdout"):
        if not bench.store.has_records(f"{split}/{part}"):
            bench.store.save_records(f"{split}/{part}", getattr(bench.arenas[arena], part))
    name = f"model/{arena}/{row.name}"
    train = train_here if bench.quick else train_apart
    return train(bench.store.folder, split, row, name, 60 * bench.minutes, bench.seed)


def _draw(bench: Bench, arena: str, row: Contender) -> Cell:
    trained = bench.store.read(f"model/{arena}/{row.trained_as}")
    if "absent" in trained:
        return {"absent": trained["absent"]}
    with progress_bar(f"draw {row.name}") as advance:
        generator = bench.model(arena, row)
        n, seconds = bench.sizes.records, 60 * bench.drawing
        drawn = draw_plainly(generator, n, bench.seed) if row.plain else None
        records, cell = drawn or draw_within(generator, n, seconds, bench.seed, advance)
    if records is None:
        return cell | {"limit_minutes": bench.drawing}
    bench.store.save_records(f"cohort/{arena}/{row.name}", records)
    return cell


def _of_cohort(bench: Bench, arena: str, row: str, measure: Callable[..., Cell]) -> Cell:
    """What `measure` finds in the row's cohort, or why there is none."""
    if row == REAL:
        return measure(real_cohort(bench.arenas[arena], bench.sizes.records, bench.seed))
    name = f"cohort/{arena}/{row}"
    cell = bench.store.read(name)
    return {"absent": cell["absent"]} if "absent" in cell else measure(bench.store.load_records(name))


# ---- measurements


def rows_of(bench: Bench, arena: str) -> list[str]:
    """The rows of the arena's tables: real records in a cohort's place, then every contender."""
    there = [row.name for row in contenders(arena, bench.quick)]
    return [REAL, *there] if there else []


def _needs(arena: str, row: str) -> tuple[str, ...]:
    return () if row == REAL else (f"cohort/{arena}/{row}",)


def _fidelity_tasks(bench: Bench, arena: str) -> list[Task]:
    def run(row: str) -> Cell:
        return _of_cohort(bench, arena, row, lambda cohort: fidelity_of(cohort, bench.arenas[arena], bench.seed))

    return [
        Task(f"fidelity/{arena}/{row}", partial(run, row), "fidelity", row, _needs(arena, row))
        for row in rows_of(bench, arena)
    ]


def _utility_tasks(bench: Bench, arena: str) -> list[Task]:
    def run(row: str, name: str) -> Cell:
        label, test = bench.label(arena, name), bench.arenas[arena].test
        return _of_cohort(bench, arena, row, lambda cohort: utility_of(cohort, label, test, bench.seed))

    return [
        Task(f"utility/{arena}/{row}/{name}", partial(run, row, name), "utility", row, _needs(arena, row), True)
        for name in bench.facts["labels"][arena]
        for row in rows_of(bench, arena)
    ]


def _guided_tasks(bench: Bench) -> list[Task]:
    cohort = f"cohort/{ALL}/{OURS}"

    def run(name: str) -> Cell:
        unconditional = bench.store.load_records(cohort)
        label, n = bench.label(ALL, name), bench.sizes.guided
        return guided_prevalence(_ours(bench), label, bench.arenas[ALL], unconditional, n, bench.seed)

    return [
        Task(f"guided/{name}", partial(run, name), "guided", OURS, (cohort,)) for name in bench.facts["labels"][ALL]
    ]


def _ours(bench: Bench) -> Generator:
    return bench.model(ALL, contenders(ALL)[0])


def _privacy_tasks(bench: Bench) -> list[Task]:
    def run(row: str) -> Cell:
        return _of_cohort(bench, ALL, row, lambda cohort: attacked(bench.data, cohort, bench.arenas[ALL], bench.seed))

    rows = [row for row in rows_of(bench, ALL) if row != REAL]
    return [Task(f"privacy/{row}", partial(run, row), "privacy", row, _needs(ALL, row)) for row in rows]


# ---- augmentation


def seeds_of(bench: Bench, label: str) -> range:
    """The repetitions of a disease's augmentation."""
    return range(bench.sizes.rarest_seeds if label == RAREST else 1)


def arm_cells(bench: Bench, label: str, seed: int) -> list[tuple[str, int, str]]:
    """(arm, records added, name of the cell), the real records alone first."""
    cells = [(ALONE, 0)] + [(arm, added) for arm in ARMS for added in bench.sizes.added]
    return [(arm, added, f"augmentation/{label}/seed{seed}/{arm}-{added}") for arm, added in cells]


def _augmentation_tasks(bench: Bench) -> list[Task]:
    tasks: dict[str, Task] = {}
    for name in bench.facts["labels"][ALL]:
        for seed in seeds_of(bench, name):
            pools = {arm: _pool_name(arm, name, seed) for arm in ARMS if arm != REAL}
            for arm, pooled in pools.items():
                draw = partial(_draw_pool, bench, pooled, None if arm == UNCONDITIONAL else name, seed)
                tasks[pooled] = Task(pooled, draw, "pool", OURS, (f"model/{ALL}/{OURS}",))
            for arm, added, cell in arm_cells(bench, name, seed):
                run = partial(_augment, bench, name, seed, arm, added)
                needs = (pools[arm],) if arm in pools else ()
                tasks[cell] = Task(cell, run, "augmentation", OURS, needs, beside_others=True)
    # pools first: they use every core, the classifiers one each
    return sorted(tasks.values(), key=lambda task: task.kind != "pool")


def _pool_name(arm: str, label: str, seed: int) -> str:
    return f"pool/seed{seed}/{arm}" + ("" if arm == UNCONDITIONAL else f"-{label}")


def _seed_of(bench: Bench, repetition: int) -> int:
    """The seed of a repetition: another run draws other records under the same names."""
    return 1_000 * bench.seed + repetition


def _draw_pool(bench: Bench, name: str, label: str | None, seed: int) -> Cell:
    wanted = None if label is None else bench.label(ALL, label)
    n_codes, n = bench.arenas[ALL].train.n_codes, max(bench.sizes.added)
    bench.store.save_records(name, pool(_ours(bench), wanted, n_codes, n, _seed_of(bench, seed)))
    return {"records": n}


def _augment(bench: Bench, name: str, seed: int, arm: str, added: int) -> Cell:
    drawn = {} if arm in (ALONE, REAL) else {arm: bench.store.load_records(_pool_name(arm, name, seed))}
    label, start = bench.label(ALL, name), bench.sizes.start
    whose = None if arm == ALONE else arm
    return augmented(label, bench.arenas[ALL], drawn, whose, start, added, _seed_of(bench, seed))
