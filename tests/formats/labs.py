"""Labs of invented patients, and cohorts of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ehr.formats.write.lab_values import LabValues
from ehr.formats.write.protocol import Block, CohortSource
from ehr.labs import PARTS, LabCurve
from ehr.records import Records
from worker.ingestion.lab_curves import learned

LAB = "LOINC:2345-7"
CODES = tuple(f"{LAB}#D{part}" for part in range(1, PARTS + 1))
Floats = NDArray[np.float64]
Make = Callable[[np.random.Generator, int], Floats]

KINDS: dict[str, Make] = {
    "normal": lambda rng, n: rng.normal(5, 1, n),
    "skewed": lambda rng, n: rng.lognormal(1, 0.8, n),
    "whole numbers": lambda rng, n: np.round(rng.lognormal(np.log(110), 0.3, n)),
    "one decimal": lambda rng, n: np.round(rng.normal(4.1, 0.5, n), 1),
    "up to a hundred": lambda rng, n: np.minimum(100, np.round(rng.normal(98, 2, n))),
    "a limit of detection": lambda rng, n: np.where(rng.random(n) < 0.3, 0.5, np.round(rng.exponential(2, n) + 0.5, 1)),
    "yes or no": lambda rng, n: (rng.random(n) < 0.3).astype(float),
    "both signs": lambda rng, n: np.round(rng.normal(0, 3, n), 1),
    "billions": lambda rng, n: np.round(rng.lognormal(20, 1, n)),
    "billionths": lambda rng, n: rng.lognormal(-14, 1, n),
    "long tails": lambda rng, n: rng.standard_cauchy(n),
}


@dataclass(frozen=True)
class Measured:
    """A lab of `n` patients, who may have it more than once."""

    values: NDArray[np.float32]
    patients: NDArray[np.int64]

    @property
    def curve(self) -> LabCurve:
        return learned(self.values, self.patients)


def measured(kind: str, n: int, seed: int = 0, most_times: int = 1) -> Measured:
    rng = np.random.default_rng(seed)
    patients = np.repeat(np.arange(n), rng.integers(1, most_times + 1, n))
    if most_times > 1:  # and somebody has it more often than all others together
        patients = np.concatenate([patients, np.zeros(2 * len(patients), dtype=np.int64)])
    return Measured(KINDS[kind](rng, len(patients)).astype(np.float32), patients)


def cohort_of(parts: NDArray[np.int64], curve: LabCurve, block_records: int = 1 << 14, seed: int = 0) -> CohortSource:
    """Record i has the lab in part `parts[i]`, from 0."""

    def blocks() -> Iterator[Block]:
        for first in range(0, len(parts), block_records):
            own = parts[first : first + block_records]
            yield Block(first, Records(np.arange(len(own) + 1), own.astype(np.int32), PARTS))

    return CohortSource(CODES, len(parts), blocks, lambda: len(parts), lab_curves={LAB: curve}, seed=seed)


def drawn(cohort: CohortSource) -> Floats:
    """The number of each record's lab."""
    labs = LabValues(cohort)
    return np.concatenate([labs.of(block) for block in cohort.blocks()])
