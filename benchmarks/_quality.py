"""How good a trained generator is beside records that it has not seen: what several benchmarks measure alike."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks._harness import progress_bar
from ehr.records import Records
from worker.engine.generators import SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.metrics import Measurement, Result, fidelity
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.distinguisher import told_apart

RECORDS = 25_000
COHORTS = 3  # that a classifier tells from unseen records


def fidelity_to(
    generator: D3PMGenerator, train: Records, test: Records, n: int, label: str, seed: int = 0
) -> dict[str, Result]:
    """Fidelity of an unconditional cohort at the default number of calls."""
    synth = generator.sample(SampleRequest(n, seed=seed))
    with progress_bar(f"measure {label}") as advance:
        return fidelity(synth, test, train, np.random.default_rng(1), lambda _, done, total: advance(done, total))


class Unseen(NamedTuple):
    """Nats of unseen records, and how well a classifier tells cohorts from them: ours and real ones, (cohorts, 2)."""

    elbo: float
    told: NDArray[np.float64]

    @property
    def excess(self) -> NDArray[np.float64]:
        """How much better ours are told than real ones, (cohorts,)."""
        more: NDArray[np.float64] = self.told[:, 0] - self.told[:, 1]
        return more


def measure_unseen(generator: D3PMGenerator, train: Records, test: Records, quick: bool) -> Unseen:
    """Both, over several cohorts: one says little."""
    n = min(1_000 if quick else RECORDS, len(test), len(train))
    elbo = generator.held_out_elbo(test, draws=1 if quick else 4)
    told = np.zeros((1 if quick else COHORTS, 2))
    with progress_bar("telling apart") as advance:
        for seed in range(len(told)):
            rng = np.random.default_rng(seed)
            cohorts = generator.sample(SampleRequest(n, seed=seed)), sampled(train, n, rng)
            told[seed] = [or_nan(told_apart(cohort, test, rng)[0].value) for cohort in cohorts]
            advance(seed + 1, len(told))
    return Unseen(elbo.value, told)


def or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def in_short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def with_interval(measured: Measurement) -> str:
    return f"{in_short(measured.value)} ({in_short(measured.low)} to {in_short(measured.high)})"


def times_the_floor(result: Result) -> float:
    """How many times worse than its floor a metric is; not a number where that means nothing."""
    ours, floor = or_nan(result.value.value), or_nan(result.floor.value)
    if result.metric.direction == "lower":
        return ours / floor if floor > 0 else math.nan
    if ours <= 0 < floor:  # a ranking the wrong way round is worse than any multiple
        return math.inf
    return floor / ours if ours > 0 else math.nan
