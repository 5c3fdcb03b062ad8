"""What a simulated patient's visits have shown so far: drugs and screenings follow it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from worker.engine.population.histories import SimulatedHistories

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LONG_AGO = 1 << 20  # visits since a screening that never was


@dataclass
class Shown:
    """One row for each patient."""

    indicated: NDArray[np.bool_]  # (P, D), a diagnosis of the drug was there
    taken: NDArray[np.bool_]  # (P, D), at the last visit
    since: Ints  # (P, E), visits since the last screening

    @classmethod
    def nothing(cls, process: "SimulatedHistories", n: int) -> "Shown":
        drugs = np.zeros((n, len(process.drug_start)), bool)
        return cls(drugs, drugs.copy(), np.full((n, len(process.screening_every)), LONG_AGO))

    def of(self, rows: Ints) -> "Shown":
        return Shown(self.indicated[rows], self.taken[rows], self.since[rows])

    def drugs(self, process: "SimulatedHistories", rows: Ints) -> Floats:
        """P(drug at the next visit), (B, D)."""
        return np.where(self.taken[rows], process.drug_continued, self.indicated[rows] * process.drug_start)

    def screenings(self, process: "SimulatedHistories", rows: Ints, groups: Ints) -> Floats:
        """P(screening at the next visit, if that is an outpatient visit), (B, E)."""
        return process.screening_done[groups] * (self.since[rows] >= process.screening_every)

    def add(
        self,
        process: "SimulatedHistories",
        rows: Ints,
        of_state: NDArray[np.bool_],
        of_lasting: NDArray[np.bool_],
        drugs: NDArray[np.bool_],
        screened: NDArray[np.bool_],
    ) -> None:
        """Another visit of the patients at `rows`."""
        diagnoses = np.hstack([of_state, of_lasting]).astype(np.float32)
        self.indicated[rows] |= diagnoses @ process.triggers.T.astype(np.float32) > 0
        self.taken[rows] = drugs
        self.since[rows] = np.where(screened, 0, self.since[rows] + 1)
