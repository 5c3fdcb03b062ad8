"""Reports on many conditions: someone who reads dozens of them and subtracts cannot solve for a few patients.

All that tell of the same few codes, a hundred and more, can be solved: decision 0032 says so.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, milp

from ehr.conditions import Condition
from ehr.disclosure import ROUNDED_TO, SMALLEST_SHOWN
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from worker.engine.metrics.measurement import SMALLEST_SLICE
from worker.evaluation.pictures import RealCounts, pictures

N = 5
NAMES = Vocabulary(tuple(f"A:{i}" for i in range(N)))
KINDS = Records.from_dense(np.array(list(itertools.product([0, 1], repeat=N)), dtype=np.uint8))  # every possible record


def patients(n: int, seed: int) -> Records:
    """Most combinations of codes are common, and some only a few patients have."""
    return Records.from_dense(np.random.default_rng(seed).random((n, N)) < [0.5, 0.4, 0.3, 0.2, 0.1])


def with_signs() -> Iterator[Condition]:
    """Every way to require some codes and forbid others."""
    for signs in itertools.product((-1, 0, 1), repeat=N):
        yield Condition.of(
            N,
            all_of=[i for i in range(N) if signs[i] > 0],
            none_of=[i for i in range(N) if signs[i] < 0],
        )


def conditions() -> Iterator[Condition]:
    """Those that name at most two codes."""
    return (each for each in with_signs() if len(each.all_of | each.none_of) <= 2)


class Reader:
    """Knows for many sets of kinds of records between which bounds the number of patients lies."""

    def __init__(self, test: Records, everyone: Records, step: int) -> None:
        self.test, self.everyone, self.step = test, everyone, step
        self.sets: list[NDArray[Any]] = []
        self.bounds: list[tuple[float, float]] = []

    def read_all(self) -> None:
        has = KINDS.to_dense(bool)
        for condition in conditions():
            inside = self.test.take(np.flatnonzero(condition.satisfied_by(self.test)))
            if len(inside) < SMALLEST_SLICE:
                continue
            counts = RealCounts.of(self.test, self.everyone)
            if not condition.is_empty:
                counts = RealCounts(
                    (RealCounts.of(inside).counts + counts.counts), (len(inside), *counts.totals), self.step
                )
            these, drawn = condition.satisfied_by(KINDS), pictures(self.test, inside, counts, NAMES)
            self._learn(these, counts.total, counts.step)
            share = {point.code: point.real for point in drawn.prevalence}
            for code, real in share.items():
                self._learn(these & has[:, NAMES.positions[code]], real * counts.total, counts.step)
            for pair in drawn.correlation:
                a, b = (share[code] for code in pair.codes)
                both = pair.real * np.sqrt(a * (1 - a) * b * (1 - b)) + a * b
                i, j = (NAMES.positions[code] for code in pair.codes)
                if 0 < a < 1 and 0 < b < 1:
                    self._learn(these & has[:, i] & has[:, j], both * counts.total, counts.step)

    def _learn(self, kinds: NDArray[np.bool_], told: float, step: int) -> None:
        count = round(told)
        self.sets.append(kinds.astype(float))
        if count == 0:
            self.bounds.append((0, 0))  # 1 to 10 patients would not be told at all
        else:
            self.bounds.append((max(count - step // 2, SMALLEST_SHOWN), count + (step - 1) // 2))

    def solve(self, kinds: NDArray[np.bool_]) -> tuple[int, int]:
        """The fewest and the most patients of these kinds that agree with everything that was told."""
        low, high = np.array(self.bounds).T
        told = LinearConstraint(np.array(self.sets), low, high)
        ends = []
        for sign in (1, -1):
            found = milp(sign * kinds.astype(float), integrality=np.ones(len(kinds)), constraints=told)
            assert found.success
            ends.append(round(sign * found.fun))
        return ends[0], ends[1]


def small_cells(test: Records) -> list[tuple[Condition, int]]:
    counted = ((condition, int(condition.satisfied_by(test).sum())) for condition in with_signs())
    return [(condition, n) for condition, n in counted if 0 < n < SMALLEST_SHOWN]


def told_apart(seed: int, step: int) -> list[bool]:
    """For each small cell whether a reader of all reports, which tell counts in such steps, knows that it is small."""
    test, others = patients(3000, seed), patients(12_000, seed + 10)
    reader = Reader(test, Records.concatenate([test, others]), step)
    reader.read_all()
    found = []
    for condition, n in small_cells(test):
        fewest, most = reader.solve(condition.satisfied_by(KINDS))
        assert fewest <= n <= most  # the reader understands what is told
        found.append(fewest > 0 and most < SMALLEST_SHOWN)
    assert len(found) >= 3
    return found


@pytest.mark.parametrize("seed", range(2))
def test_dozens_of_reports_do_not_tell_how_few_patients_there_are(seed: int) -> None:
    assert not any(told_apart(seed, ROUNDED_TO))


def test_exact_counts_in_the_same_reports_would() -> None:
    assert any(told_apart(0, 1))
