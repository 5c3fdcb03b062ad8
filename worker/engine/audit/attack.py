"""What an attack on a model is, and what it finds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from worker.engine.audit.people import AuditSets, Sides
from worker.engine.audit.separation import Scores
from worker.engine.generators import Generator
from worker.engine.metrics.measurement import Words


@dataclass(frozen=True)
class AucLimits:
    """Of the area under the curve; 0.5 is chance."""

    caution: float  # more than this, beyond doubt, is not good;
    fail: float  # and fails if the area is larger than this
    unsure: float  # an area that must be ruled out before anything is called good
    # likewise of the true positives at 1 % false ones; chance is 0.01
    tpr_caution: float = 0.02
    tpr_fail: float = 0.05


@dataclass(frozen=True)
class Variant:
    """An attack on some people with some knowledge: the scores of members and of others, or why there are none."""

    name: str
    members: Scores
    others: Scores
    absent: str | None = None
    rare: bool = False  # about codes that few patients have
    accuracy: bool = False  # scores are hits (1) and misses (0)

    @classmethod
    def missing(cls, name: str, reason: str, rare: bool = False) -> "Variant":
        return cls(name, np.zeros(0), np.zeros(0), reason, rare)


Attacked = TypeVar("Attacked")


@dataclass(frozen=True)
class AuditAttack(Generic[Attacked]):
    """On a model of records or of histories. One line of `ATTACKS` or `HISTORY_ATTACKS` makes a new one."""

    name: str
    title: str
    limits: AucLimits
    words: Words
    measure: Callable[[Attacked, np.random.Generator], Sequence[Variant]]


@dataclass(frozen=True)
class AuditedModel:
    """A generator, and the people on whom it is tried."""

    generator: Generator
    sets: AuditSets


def too_few(sides: Sides) -> str | None:
    """Why these people cannot be attacked, or None."""
    return "there are too few such people among the members or the others" if sides.too_few else None
