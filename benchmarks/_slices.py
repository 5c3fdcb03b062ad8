"""Cohorts under a condition, measured against the real records that satisfy it (slice_prevalence_l1 of the metrics)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ehr.conditions import Condition
from ehr.records import Records
from worker.engine.generators import Generator, SampleRequest
from worker.engine.population import SimulatedPopulation

Floats = NDArray[np.float64]

CODE_PREVALENCES = (0.2, 0.07, 0.01, 0.003, 0.001)
PAIR_PREVALENCES = (0.05, 0.01, 0.002)
REJECTION_POOL = 25_000
GUIDED = 2_000
DRAWS = 4  # cohorts of a slice: codes are revealed to a thousand records in one order, so that one cohort says little


@dataclass(frozen=True)
class Slice:
    """A condition on one code or a pair, named by its codes."""

    name: str
    condition: Condition
    prevalence: float


def slices(records: Records, vocabulary: list[str]) -> list[Slice]:
    """The codes and pairs whose share of the records is nearest to fixed targets: nothing is chosen by hand."""
    prevalence = records.prevalence()
    x = csr_array((np.ones(len(records.indices)), records.indices, records.indptr), (len(records), records.n_codes))
    together = (x.T @ x).toarray() / len(records)
    np.fill_diagonal(together, 0)
    together = np.triu(together)
    found: list[tuple[int, ...]] = [(int(np.abs(prevalence - p).argmin()),) for p in CODE_PREVALENCES]
    found += [
        tuple(map(int, np.unravel_index(np.abs(together - p).argmin(), together.shape))) for p in PAIR_PREVALENCES
    ]
    shares = [prevalence[codes[0]] if len(codes) == 1 else together[codes] for codes in found]
    return [
        Slice(" + ".join(vocabulary[c] for c in codes), Condition.of(records.n_codes, all_of=codes), float(share))
        for codes, share in zip(found, shares, strict=True)
    ]


@dataclass(frozen=True)
class SliceResult:
    """Attainment and distance of one way of making a cohort; None where it gave no records."""

    attainment: float | None
    l1: float | None


@dataclass(frozen=True)
class SliceOutcome:
    """Every way for one slice, beside the floor."""

    slice: Slice
    real: int  # records that satisfy the condition
    floor: float
    ways: dict[str, SliceResult]


def measure_slices(generator: Generator, chosen: Iterable[Slice], real: Records, quick: bool) -> Iterator[SliceOutcome]:
    """Exact conditioning for each slice (the mean over some cohorts), guidance, setting the bit, and rejection."""
    pool = generator.sample(SampleRequest(1_024 if quick else REJECTION_POOL, seed=99))
    for one in chosen:
        rows = np.random.default_rng(0).permutation(np.flatnonzero(one.condition.satisfied_by(real)))
        half, other = real.take(rows[: len(rows) // 2]), real.take(rows[len(rows) // 2 :])
        n, target = len(half), other.prevalence()
        drawn = [
            _result(generator.sample(SampleRequest(n, seed, one.condition)), one.condition, target)
            for seed in range(1, 2 if quick else 1 + DRAWS)
        ]
        ways = {"exact": _mean(drawn)}
        guided = generator.sample(SampleRequest(min(n, 64 if quick else GUIDED), 1, one.condition, method="langevin"))
        ways["langevin"] = _result(guided, one.condition, target)
        taken = pool.take(np.arange(min(n, len(pool))))
        ways["bit set"] = _result(_with_bits(taken, one.condition), one.condition, target)
        met = np.flatnonzero(one.condition.satisfied_by(pool))[:n]
        ways["rejection"] = _result(pool.take(met), one.condition, target)
        yield SliceOutcome(one, len(rows), l1(half.prevalence(), target), ways)


def l1(a: Floats, b: Floats) -> float:
    """Sum over codes of the difference of prevalences."""
    return float(np.abs(a - b).sum())


@dataclass(frozen=True)
class TruthOutcome:
    """One condition on a population whose conditional prevalences are known."""

    name: str
    trained_on: int  # training records that satisfy the condition
    attainment: float
    l1: float  # to the second half of as many true records as were trained on
    floor: float  # of the first half to the second
    to_truth: float  # of ours to the exact prevalences
    half_to_truth: float  # of the first half


def measure_against_truth(
    generator: Generator, population: SimulatedPopulation, train: Records, chosen: Iterable[Slice]
) -> Iterator[TruthOutcome]:
    """As for real slices, and beside it the distance to the exact prevalences."""
    for one in chosen:
        support = int(one.condition.satisfied_by(train).sum())
        n = max(support // 2, 20)
        _, truth = population.conditional_prevalence(all_of=sorted(one.condition.all_of))
        drawn = generator.sample(SampleRequest(n, 1, one.condition))
        ours = drawn.prevalence()
        true = _true_records(population, one.condition, 2 * n)
        half, other = (true.take(rows).prevalence() for rows in (np.arange(n), np.arange(n, 2 * n)))
        attained = float(one.condition.satisfied_by(drawn).mean())
        yield TruthOutcome(
            one.name, support, attained, l1(ours, other), l1(half, other), l1(ours, truth), l1(half, truth)
        )


def _true_records(population: SimulatedPopulation, condition: Condition, n: int) -> Records:
    """n records of the population that satisfy the condition, by rejection."""
    rng, parts, found = np.random.default_rng(2), [], 0
    while found < n:
        drawn = population.sample(50_000, rng)
        parts.append(drawn.take(np.flatnonzero(condition.satisfied_by(drawn))))
        found += len(parts[-1])
    return Records.concatenate(parts).take(np.arange(n))


def _result(cohort: Records, condition: Condition, target: Floats) -> SliceResult:
    if len(cohort) == 0:
        return SliceResult(None, None)
    return SliceResult(float(condition.satisfied_by(cohort).mean()), l1(cohort.prevalence(), target))


def _mean(results: list[SliceResult]) -> SliceResult:
    """The mean distance of several cohorts, and the least of what they attain."""
    attained = [each.attainment for each in results if each.attainment is not None]
    distances = [each.l1 for each in results if each.l1 is not None]
    return SliceResult(min(attained), float(np.mean(distances))) if distances else SliceResult(None, None)


def _with_bits(records: Records, condition: Condition) -> Records:
    x = records.to_dense(np.uint8)
    x[:, sorted(condition.all_of)] = 1
    return Records.from_dense(x)
