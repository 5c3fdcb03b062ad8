"""What must happen to a patient for the first time, and the visit at which it does."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ehr.errors import ConditionError
from ehr.histories import NEVER, first_visits
from ehr.history_conditions import HistoryCondition
from worker.engine.histories.pilot import LEAST, Pilot


@dataclass
class Plan:
    """For each slot, when the events of a condition happen; visits are counted from 0."""

    when: Tensor  # (slots, events)
    last_needed: Tensor  # (slots,): the history goes on up to this visit

    def keep(self, slots: Tensor) -> None:
        self.when, self.last_needed = self.when[slots], self.last_needed[slots]


def events_of(condition: HistoryCondition) -> tuple[list[frozenset[int]], list[tuple[int, int]]]:
    """Events, each one of some codes for the first time, and which of them come in order. What the visits that are
    given have already is no event any more."""
    ever, pairs = list(condition.ever), []
    for first, then in condition.before:
        a, b = (_first_given(condition, codes) for codes in (first, then))
        if b < NEVER and a >= b:
            raise ConditionError("the visits that are given have the codes of an order the other way round")
        if a < NEVER:
            ever.append(then)
        else:
            pairs.append((first - then, then))
    named = [codes for pair in pairs for codes in pair]
    open_ = [codes for codes in ever if _first_given(condition, codes) == NEVER]
    sets = [codes for codes in dict.fromkeys(open_) if not any(other <= codes for other in named)]
    orders = [(len(sets) + 2 * number, len(sets) + 2 * number + 1) for number in range(len(pairs))]
    return [codes - condition.never for codes in (*sets, *named)], orders


def planned(
    slots: int,
    events: int,
    orders: list[tuple[int, int]],
    between: tuple[int, int],
    pilot: Pilot | None,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """When the events happen for each slot, (slots, events), at visits `between` two numbers, and the log weights
    (slots,) that slots begin with: events are drawn one by one, though all need the patient to live to see them."""
    when, log_weight = np.zeros((slots, events), dtype=np.int64), np.zeros(slots)
    if pilot is None:
        return when, log_weight
    alive = np.log(np.maximum(pilot.alive, LEAST))
    for event in sorted(set(range(events)) - {event for pair in orders for event in pair}):
        when[:, event] = pilot.draw(event, slots, between, rng)
        log_weight -= alive[when[:, event]]
    for first, then in orders:
        when[:, first], when[:, then] = pilot.draw_order(first, then, slots, between, rng)
        log_weight -= alive[when[:, then]]
    return when, log_weight + alive[when.max(axis=1)]


def _first_given(condition: HistoryCondition, codes: frozenset[int]) -> int:
    """The number of the first visit that is given with one of the codes, or NEVER."""
    return NEVER if condition.prompt is None else int(first_visits(condition.prompt, codes)[0])
