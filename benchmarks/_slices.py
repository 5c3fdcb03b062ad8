"""Cohorts under a condition, measured against the real records that satisfy it (slice_prevalence_l1 of the metrics)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from worker.engine.conditions import Condition
from worker.engine.generators import Generator, SampleRequest
from worker.engine.records import Records

Floats = NDArray[np.float64]

CODE_PREVALENCES = (0.2, 0.07, 0.01, 0.003, 0.001)
PAIR_PREVALENCES = (0.05, 0.01, 0.002)
REJECTION_POOL = 25_000


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


def measure_slices(
    generator: Generator, chosen: Iterable[Slice], real: Records, compare: bool
) -> Iterator[SliceOutcome]:
    """Exact conditioning for each slice; with `compare` also guidance, setting the bit, and rejection."""
    pool = generator.sample(SampleRequest(REJECTION_POOL, seed=99)) if compare else None
    for one in chosen:
        rows = np.random.default_rng(0).permutation(np.flatnonzero(one.condition.satisfied_by(real)))
        half, other = real.take(rows[: len(rows) // 2]), real.take(rows[len(rows) // 2 :])
        n, target = len(half), other.prevalence()
        ways = {"exact": _result(generator.sample(SampleRequest(n, 1, one.condition)), one.condition, target)}
        if pool is not None:
            guided = generator.sample(SampleRequest(min(n, 2_000), 1, one.condition, method="langevin"))
            ways["langevin"] = _result(guided, one.condition, target)
            taken = pool.take(np.arange(min(n, len(pool))))
            ways["bit set"] = _result(_with_bits(taken, one.condition), one.condition, target)
            ways["rejection"] = _result(
                pool.take(np.flatnonzero(one.condition.satisfied_by(pool))[:n]), one.condition, target
            )
        yield SliceOutcome(one, len(rows), l1(half.prevalence(), target), ways)


def l1(a: Floats, b: Floats) -> float:
    """Sum over codes of the difference of prevalences."""
    return float(np.abs(a - b).sum())


def truth_outcomes(
    generator: Generator,
    conditions: list[tuple[str, Condition, Floats]],
    n: int,
    draw_true: Callable[[Condition, int], Records],
) -> Iterator[tuple[str, float, float, float]]:
    """(name, attainment, distance to the exact prevalences, distance of as many true records) for each condition."""
    for name, condition, truth in conditions:
        drawn = generator.sample(SampleRequest(n, 1, condition))
        floor = l1(draw_true(condition, n).prevalence(), truth)
        yield name, float(condition.satisfied_by(drawn).mean()), l1(drawn.prevalence(), truth), floor


def _result(cohort: Records, condition: Condition, target: Floats) -> SliceResult:
    if len(cohort) == 0:
        return SliceResult(None, None)
    return SliceResult(float(condition.satisfied_by(cohort).mean()), l1(cohort.prevalence(), target))


def _with_bits(records: Records, condition: Condition) -> Records:
    x = records.to_dense(np.uint8)
    x[:, sorted(condition.all_of)] = 1
    return Records.from_dense(x)
