"""When do patients come to have a code? Told by a few patients drawn without it: the mean over them of the chance that
the network gives at each visit, so that a code nobody of them has is known about as well."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ehr.errors import ConditionError

Floats = NDArray[np.float64]
LEAST = 1e-9


@dataclass
class Pilot:
    """Means over pilot patients, by the number of the visit from 0 on."""

    hazards: list[Floats]  # for each event, (visits,): P(it happens at this visit | not before)
    goes_on: Floats  # (visits,): P(another visit follows)

    @property
    def alive(self) -> Floats:
        """P(a patient has a visit of that number), (visits,)."""
        return np.concatenate([[1.0], np.cumprod(self.goes_on[:-1])])

    def note(self, number: int, happens: Floats, open_: NDArray[np.bool_], goes_on: Floats) -> None:
        """What the network says before a visit: the chance of each event (B, events) and of going on (B,). An event
        that a patient has had is not `open_` any more; where that is everybody, the visit before has to do."""
        self.goes_on[number] = goes_on.mean()
        for event, hazard in enumerate(self.hazards):
            still = happens[open_[:, event], event]
            hazard[number] = still.mean() if len(still) else hazard[max(number - 1, 0)]

    def first_at(self, event: int) -> Floats:
        """P(the event first happens at this visit | the patient lives to see it), (visits,)."""
        hazard = self.hazards[event]
        first: Floats = np.concatenate([[1.0], np.cumprod(1 - hazard[:-1])]) * hazard
        return first

    def draw(self, event: int, n: int, between: tuple[int, int], rng: np.random.Generator) -> NDArray[np.int64]:
        """The visit at which the event happens for each of n patients, `between` two numbers."""
        first, last = between
        p = np.maximum(self.first_at(event), LEAST) * np.maximum(self.alive, LEAST)
        chosen: NDArray[np.int64] = first + rng.choice(last + 1 - first, n, p=_shares(p[first : last + 1]))
        return chosen

    def draw_order(
        self, event: int, later: int, n: int, between: tuple[int, int], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same for two events of which the second comes after the first."""
        first, last = between
        if last <= first:
            raise ConditionError("there are too few visits for one code to come before another")
        chances = np.maximum(self.first_at(event), LEAST)
        after = np.maximum(self.first_at(later), LEAST) * np.maximum(self.alive, LEAST)
        table = np.triu(np.outer(chances, after), 1)[first : last + 1, first : last + 1]
        chosen = rng.choice(table.size, n, p=_shares(table.ravel()))
        return first + chosen // len(table), first + chosen % len(table)


def _shares(p: Floats) -> Floats:
    shares: Floats = p / p.sum()
    return shares
