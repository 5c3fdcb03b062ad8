"""Deploys under load: what is lost when workers are told to stop, and when one version replaces another."""

import signal
from pathlib import Path

from benchmarks._fleet_load import Load
from benchmarks._fleet_parts import HERE, Fleet, Running, new_fleet
from benchmarks._harness import Figures, console, progress_bar

DEPLOYS, QUICK_DEPLOYS = 8, 2
WORKERS = 2


def deploys(figures: Figures, quick: bool) -> None:
    """`deploys.lost_jobs`: SIGTERM to one worker after the other, its successor already there, while trainings and
    cohorts are under way. `deploys.different_results`: all trainings are the same one, and all cohorts."""
    rounds = QUICK_DEPLOYS if quick else DEPLOYS
    met = []
    with new_fleet() as fleet:
        fleet.migrate()
        api, workers = fleet.api(), [fleet.worker() for _ in range(WORKERS)]
        with Load(api.url, fleet.folder) as load, progress_bar("deploys") as advance:
            for number in range(rounds):
                met.append(load.pace(1 if quick else 3))
                _exchange(fleet, workers, HERE)
                advance(number + 1, rounds)
            load.drain()
            load.report(f"{rounds} deploys under load, jobs at work when they came: {met}")
            load.count(figures, "deploys", "lost_jobs")
            figures.add("deploys.different_results", load.different_results(), "results")


def upgrade(other: Path, figures: Figures, quick: bool) -> None:
    """`upgrade.failed_jobs`: a fleet of the version in `other` becomes one of this version while jobs are under way:
    migration, then APIs and workers one after the other, both versions side by side, once a step back and forth again.
    """
    if other == HERE:
        console.print("upgrade: without --other DIR, an older checkout, this version replaces itself")
    pace, met = 1 if quick else 4, []
    with new_fleet() as fleet:
        fleet.migrate(other)
        old_api, workers = fleet.api(other), [fleet.worker(other) for _ in range(WORKERS)]
        with Load(old_api.url, fleet.folder) as load, progress_bar("steps of the upgrade") as advance:

            def under_load(step: int) -> None:
                met.append(load.pace(pace))
                advance(step, 6)

            under_load(0)
            fleet.migrate()
            under_load(1)
            new_api = fleet.api()
            load.urls = [old_api.url, new_api.url]  # both are asked from now on
            under_load(2)
            _exchange(fleet, workers, HERE)
            under_load(3)  # an old worker beside a new one, jobs of either API
            if not quick:
                _exchange(fleet, workers, HERE)
                under_load(4)
                _exchange(fleet, workers, other)  # back
                under_load(5)
            _exchange_all(fleet, workers, other)
            load.urls = [new_api.url]
            load.pace(pace)
            _stopped(old_api)
            under_load(6)
            load.drain()
            load.report(f"from {other} to {HERE}, jobs at work when each step came: {met}")
            load.count(figures, "upgrade", "failed_jobs")


def _exchange(fleet: Fleet, workers: list[Running], checkout: Path) -> None:
    """The oldest of the workers for one of a checkout."""
    workers.append(fleet.worker(checkout))
    _stopped(workers.pop(0))


def _exchange_all(fleet: Fleet, workers: list[Running], old: Path) -> None:
    """None of the old version is left."""
    while any(worker.checkout == old != HERE for worker in workers):
        _exchange(fleet, workers, HERE)


def _stopped(running: Running) -> None:
    if (code := running.stop()) not in (0, -signal.SIGTERM):  # uvicorn ends itself by the signal when all is done
        raise RuntimeError(f"a process ended with {code}: {running.log.read_text()[-2000:]}")
