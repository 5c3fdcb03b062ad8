"""Makes the cells of a plan that are not finished, and tells how long the rest will take."""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks._harness import console
from benchmarks.paper.plan import Bench, plan
from benchmarks.paper.store import Task
from worker.engine.metrics.utility import TRAININGS_AT_A_TIME

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
