"""How many of the patients that a model drew satisfy what is asked of their histories, and the nearest that more do.

As with records (support.py), nothing here has seen a patient: answers are a function of those that the model drew
once, after training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ehr.conditions import AskedCondition
from ehr.errors import ConditionError, UnknownCodeError
from ehr.histories import Histories
from ehr.history_conditions import AskedHistoryCondition, HistoryCondition
from ehr.history_targets import HistoryTarget, with_certain
from ehr.relaxation import search
from ehr.support import MOST_LOOKED_AT, DrawnOnce, dealt, smallest_of
from ehr.vocabulary import Vocabulary

MOST_PARTS = 40  # of a request that a nearer one is looked for


class HistoryReference(DrawnOnce):
    """The patients that a model drew once."""

    def __init__(self, histories: Histories, training_patients: int) -> None:
        super().__init__(len(histories), training_patients)
        self.histories = histories

    def satisfied(self, condition: HistoryCondition) -> NDArray[np.bool_]:
        """Which patients satisfy it, (P,)."""
        return condition.satisfied_by(self.histories)

    def meeting(self, target: HistoryTarget) -> NDArray[np.bool_]:
        """Which patients have one of its codes, (P,)."""
        return self.satisfied(target.required(None)())

    def smallest_part(self, condition: HistoryCondition, targets: Sequence[HistoryTarget]) -> int:
        """Of the patients who satisfy the condition, divided by which targets they meet: the fewest in a part."""
        rows = self.satisfied(with_certain(condition, targets))
        shares = [self.meeting(target)[rows] for target in targets if 0 < target.share < 1]
        return smallest_of(int(rows.sum()), shares)

    def first(self, condition: HistoryCondition, targets: Sequence[HistoryTarget], n: int) -> Histories:
        """The first patients, n at most, who satisfy it, in shares as the targets ask."""
        rows = np.flatnonzero(self.satisfied(condition))[:MOST_LOOKED_AT]
        meets = [self.meeting(target)[rows] for target in targets]
        chosen = dealt(meets, [target.share for target in targets], n, len(rows))
        return self.histories.take(rows[np.array(chosen, dtype=np.int64)])


@dataclass(frozen=True)
class Part:
    """One thing that is asked: a request of its own, the field it was written in, and how a person would say it."""

    field: str
    said: list[str]
    asked: AskedHistoryCondition


def parts_of(asked: AskedHistoryCondition) -> Iterator[Part]:
    """What was written, part by part; together they are the whole."""
    yield from (Part("ever", [code], AskedHistoryCondition(ever=[code])) for code in asked.ever)
    yield from (Part("never", [code], AskedHistoryCondition(never=[code])) for code in asked.never)
    for order in asked.before:
        yield Part("before", [f"{order.first} before {order.then}"], AskedHistoryCondition(before=[order]))
    for visit in asked.at_visit:
        said = f"{', '.join(visit.patterns)} at visit {visit.visit}"
        yield Part("at_visit", [said], AskedHistoryCondition(at_visit=[visit]))
    for name, (least, most) in {
        "visits": ("fewest_visits", "most_visits"),
        "days": ("shortest_days", "longest_days"),
    }.items():
        values = asked.model_dump(include={least, most})
        if values != AskedHistoryCondition().model_dump(include={least, most}):
            said = (
                f"{values[least]} or more {name}"
                if values[most] is None
                else f"{values[least]} to {values[most]} {name}"
            )
            yield Part(name, [said], AskedHistoryCondition(**values))
    if asked.start != AskedCondition():
        yield Part("start", list(asked.start.patterns), AskedHistoryCondition(start=asked.start))
    if asked.prompt:
        yield Part("prompt", ["the given visits"], AskedHistoryCondition(prompt=asked.prompt))


@dataclass(frozen=True)
class NearestHistory:
    """A request that can be had, what had to go for it, and how many drawn patients satisfy it."""

    asked: AskedHistoryCondition
    dropped: list[dict[str, Any]]
    matching: int | None


def nearest_history(
    vocabulary: Vocabulary, reference: HistoryReference | None, asked: AskedHistoryCondition, fewest: int
) -> NearestHistory | None:
    """The fewest parts dropped such that `fewest` drawn patients satisfy the rest, or without such patients that the
    rest does not contradict itself; None if too much is asked to look for it."""
    parts = list(parts_of(asked))
    if len(parts) > MOST_PARTS:
        return None
    usable = [part for part in parts if _resolved(vocabulary, part.asked) is not None]
    if reference is None:
        kept = search(len(usable), lambda chosen: int(_resolved(vocabulary, _joined(usable, chosen)) is not None))
        matching = None
    else:
        met = [reference.satisfied(part.asked.resolve(vocabulary)) for part in usable]

        def count(chosen: Sequence[int]) -> int:
            return int(reduce(np.logical_and, (met[i] for i in chosen), np.ones(reference.n_records, bool)).sum())

        kept = search(len(usable), lambda chosen: found if (found := count(chosen)) >= fewest else 0)
        matching = count(kept)
    keep = {id(usable[i]) for i in kept}
    dropped = [{"field": part.field, "codes": part.said} for part in parts if id(part) not in keep]
    return NearestHistory(_joined(usable, kept), dropped, matching)


def _resolved(vocabulary: Vocabulary, asked: AskedHistoryCondition) -> HistoryCondition | None:
    try:
        return asked.resolve(vocabulary)
    except (UnknownCodeError, ConditionError):
        return None


def _joined(parts: Sequence[Part], chosen: Sequence[int]) -> AskedHistoryCondition:
    """One request for all of these parts."""
    whole: dict[str, Any] = {}
    for part in (parts[i] for i in chosen):
        for name, value in part.asked.model_dump(exclude_defaults=True).items():
            whole[name] = [*whole.get(name, []), *value] if isinstance(value, list) else value
    return AskedHistoryCondition(**whole)
