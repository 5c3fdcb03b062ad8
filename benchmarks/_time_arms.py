"""Two ways to patients who ever have a code, beside patients of the simulated population, where the truth is known."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from benchmarks._harness import Figures, console, progress_bar, show
from benchmarks._histories import Patients
from benchmarks._time_set_first import SetFirst
from ehr.histories import Histories, first_visits
from ehr.history_conditions import HistoryCondition
from ehr.records import Records
from worker.engine.generators.protocol import EffectiveSize
from worker.engine.generators.visits import VisitsGenerator
from worker.engine.histories.protocol import HistoryRequest
from worker.engine.metrics.time.ks import ks_distance
from worker.engine.metrics.time.r2 import SIX_R2
from worker.engine.population import simulated_histories

REFERENCE = 4  # times as many real patients as are drawn, at most: their pairs of codes take long to count
FEWEST = 100  # patients found by rejection who are worth a row
KEPT = ("MAE", "L1", "first X KS", "visits KS", "r2_pair_visit", "cpu seconds")  # among the figures
PLANNED, PLAIN, PACED = "planned", "set_first", "set_first_paced"


def set_first_cohorts(arm: SetFirst, n: int, seed: int, figures: Figures) -> dict[str, Histories]:
    """Any patients: their visits as they come, and paced."""
    cohorts = {}
    for name, paced in ((PLAIN, False), (PACED, True)):
        with progress_bar(f"drawing patients, {name}"), cpu_seconds() as seconds:
            cohorts[name], sets = arm.sample(n, seed, paced=paced)
        met = _same_sets(cohorts[name], sets)
        console.print(f"{name}: {n / seconds[0]:.0f} patients in a second of one core; {met:.1%} have their set")
        figures.add(f"time.{name}_patients_per_s", n / seconds[0], "whole patients per second of one core")
        figures.add(f"time.{name}_sets_met", met, "share of patients who have just the codes of their set")
    return cohorts


def arms_against_exact(
    model: VisitsGenerator,
    arm: SetFirst,
    data: Patients,
    cohorts: Mapping[str, Histories],
    patients: int,
    real: int,
    figures: Figures,
) -> None:
    """For a common and a rare code X: patients of both arms who ever have X, patients of `cohorts` (drawn without any
    condition) who happen to, and real ones, beside the exact shares and others of so many `real` ones."""
    process = simulated_histories()
    population = process.sample(real, np.random.default_rng(5))
    states = range(process.blocks[1].start, process.blocks[1].stop)
    ever = {code: float(process.group_weights @ process.ever_probability(code)) for code in states}
    common = max(states, key=lambda code: "E11" in data.vocabulary.codes[code])
    for word, code in (("common", common), ("rare", min(states, key=ever.__getitem__))):
        condition = HistoryCondition(len(data.vocabulary), ever=(frozenset([code]),))
        having = population.take(np.flatnonzero(condition.satisfied_by(population)))
        size = min(patients, len(having) // 2)
        rest = np.arange(size, min(len(having), (1 + REFERENCE) * size))
        reference, floor = having.take(rest), having.take(np.arange(size))
        found = {name: np.flatnonzero(condition.satisfied_by(cohort)) for name, cohort in cohorts.items()}
        drawn = {"real": floor} | {
            f"{name}_by_rejection": cohorts[name].take(rows) for name, rows in found.items() if len(rows) >= FEWEST
        }
        costs = {}
        for name, cohort, *cost in _conditioned(model, arm, condition, size):
            drawn[name], costs[name] = cohort, cost
        exact = _exact_shares(code)
        columns = {name: _measured(each, reference, code, exact, condition) for name, each in drawn.items()}
        for name, (seconds, worth) in costs.items():
            columns[name] |= {"cpu seconds": seconds, "effective patients": worth}
        _show_arms(f"ever {data.vocabulary.codes[code]}, which {ever[code]:.1%} have", columns)
        for name, column in columns.items():
            for what in KEPT:
                figures.add(f"time.ever_{word}.{name}.{what.replace(' ', '_')}", column.get(what, np.nan), what)


def _show_arms(title: str, columns: Mapping[str, Mapping[str, float]]) -> None:
    names = list(dict.fromkeys(what for column in columns.values() for what in column))
    rows = [[what, *(f"{column[what]:.4g}" if what in column else "" for column in columns.values())] for what in names]
    show(title, ["", *(name.replace("_", " ") for name in columns)], rows)


def _conditioned(
    model: VisitsGenerator, arm: SetFirst, condition: HistoryCondition, n: int
) -> Iterator[tuple[str, Histories, float, float]]:
    """(name, patients, seconds, how many independent ones they are worth) of each arm."""
    worth = EffectiveSize()
    with cpu_seconds() as seconds:
        drawn = model.sample(HistoryRequest(n, 11, condition, effective_size=worth))
    yield PLANNED, drawn, seconds[0], worth.effective
    for name, paced in ((PLAIN, False), (PACED, True)):
        with cpu_seconds() as seconds:
            drawn, _ = arm.sample(n, 11, condition, paced)
        yield name, drawn, seconds[0], float(n)


def _measured(
    cohort: Histories,
    real: Histories,
    code: int,
    exact: Mapping[int, float],
    condition: HistoryCondition,
) -> dict[str, float]:
    process = simulated_histories()
    states = process.blocks[1]
    shares = cohort.ever().prevalence()
    errors = {other: abs(shares[other] - share) for other, share in exact.items() if other != code}
    first, of_real = (first_visits(each, [code]) for each in (cohort, real))
    met = condition.satisfied_by(cohort)
    measured = {
        "patients": float(len(cohort)),
        "met": float(met.mean()),
        "MAE": float(np.mean([error for other, error in errors.items() if states.start <= other < states.stop])),
        "L1": float(sum(errors.values())),
        "codes": float(cohort.ever().sizes().mean()),
        "first X": float(first[met].mean() + 1),
        "first X KS": _ks(first[met], of_real),
        "visits": float(cohort.visit_counts().mean()),
        "visits KS": _ks(cohort.visit_counts(), real.visit_counts()),
    }
    for metric in SIX_R2:
        value = metric.measure(cohort, real, np.random.default_rng(0)).value
        measured[metric.name] = np.nan if value is None else value
    return measured


def _exact_shares(code: int) -> dict[int, float]:
    """P(ever Y | ever X) for every code Y of visits."""
    process = simulated_histories()
    weights = process.group_weights
    ever = float(weights @ process.ever_probability(code))
    others = range(process.blocks[0].start, process.n_codes)
    return {each: float(weights @ process.ever_both_probability(code, each)) / ever for each in others if each != code}


def _same_sets(drawn: Histories, sets: Records) -> float:
    return float((drawn.ever().to_dense() == sets.to_dense()).all(axis=1).mean())


def _ks(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    distance = ks_distance(a, b)
    return np.nan if distance is None else distance


@contextmanager
def cpu_seconds() -> Iterator[list[float]]:
    """The list receives the seconds of all cores that were spent inside: other work on the machine does not count."""
    seconds: list[float] = []
    start = time.process_time()
    yield seconds
    seconds.append(time.process_time() - start)
