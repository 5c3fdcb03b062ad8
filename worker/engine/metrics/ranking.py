"""Test records in the order of their scores: every area under a curve of every bootstrap is a sum over it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from worker.engine.metrics.measurement import Bounds, Metric

# how many records with, and how many without the label are called at each threshold, (T,)
Curve = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class AreaMetric(Metric):
    """An area under a curve of a classifier's scores."""

    family: str = "utility"
    direction: Literal["higher", "lower"] = "higher"
    bounds: Bounds = (0.0, 1.0)
    area: Callable[[Curve], float]
    chance: Callable[[float], float]  # prevalence of the label -> what scores that know nothing give


@dataclass(frozen=True)
class Ranking:
    """Sorted once, however many bootstraps are drawn."""

    truth: NDArray[np.bool_]  # best score first, (R,)
    place: NDArray[np.int64]  # of each record in that order, (R,)
    last: NDArray[np.int64]  # the last of the records that have the same score: they are called together, (T,)

    @classmethod
    def of(cls, truth: NDArray[np.bool_], scores: NDArray[np.float64]) -> "Ranking":
        order = np.argsort(-scores, kind="stable")
        last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
        return cls(truth[order], np.argsort(order), last)

    def curve(self, rows: NDArray[np.int64] | None = None) -> Curve:
        """Of all records, or of those in `rows`, which may have some more than once."""
        chosen = self.place if rows is None else self.place[rows]
        times = np.bincount(chosen, minlength=len(self.truth))
        found, called = np.cumsum(times * self.truth)[self.last], np.cumsum(times)[self.last]
        return found, called - found
