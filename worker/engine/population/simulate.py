"""The mathematics of the simulated population: a finite mixture of independent codes, so everything is exact.

A record is drawn in two steps: a latent state s (sex, age, conditions) with probability `state_weights[s]`, then every
code i on its own with probability `code_probabilities[s, i]`. All answers below are sums over the S states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ehr.errors import ConditionError, DataError
from ehr.records import Records

Floats = NDArray[np.float64]
SAMPLE_BLOCK = 1 << 16  # records drawn at a time: large enough for numpy, small enough for the cache


@dataclass(frozen=True, eq=False)
class SimulatedPopulation:
    """A population of records with S latent states and N codes; row s of `code_probabilities` belongs to state s."""

    vocabulary: tuple[str, ...]
    descriptions: tuple[str, ...]
    state_weights: Floats  # (S,), sums to 1
    code_probabilities: Floats  # (S, N)

    def __post_init__(self) -> None:
        shape = (len(self.state_weights), len(self.vocabulary))
        if self.code_probabilities.shape != shape or len(self.descriptions) != shape[1]:
            raise DataError(f"{shape[0]} states and {shape[1]} codes need probabilities of shape {shape}")
        if np.any(self.state_weights < 0) or not np.isclose(self.state_weights.sum(), 1, rtol=0, atol=1e-9):
            raise DataError("the weights of the states must be non-negative and sum to 1")
        if not np.all((self.code_probabilities >= 0) & (self.code_probabilities <= 1)):
            raise DataError("the probabilities of the codes must lie between 0 and 1")

    @property
    def n_codes(self) -> int:
        return len(self.vocabulary)

    def sample(self, n: int, rng: np.random.Generator) -> Records:
        """`n` independent records. Memory follows the codes that are drawn."""
        if n < 0:
            raise DataError(f"{n} records cannot be drawn")
        # A code of probability p is present if a Poisson count of rate -log(1 - p) is not 0. So instead of N coins,
        # draw how many events a record has in all and which code each is: the work follows the codes that are there.
        p, certain = self.code_probabilities, self.code_probabilities == 1
        rate = -np.log1p(-np.where(certain, 0, p))  # (S, N)
        events = rate.sum(axis=1)  # (S,)
        cdf = np.cumsum(rate, axis=1)
        cdf /= np.where(cdf[:, -1:] > 0, cdf[:, -1:], 1)
        # state s holds the interval from s to s + 1, so that one search finds the code of any state
        cdf = (np.arange(len(cdf))[:, None] + cdf).ravel()  # (S * N,)
        sure = Records.from_dense(certain)
        parts = [Records.from_pairs([], [], 0, self.n_codes)]
        for start in range(0, n, SAMPLE_BLOCK):
            size = min(SAMPLE_BLOCK, n - start)
            states = rng.choice(len(events), size=size, p=self.state_weights)
            rows = np.argsort(states)  # records of one state together: the search below stays in the cache
            states = states[rows]
            counts = rng.poisson(events[states])
            positions = np.repeat(states, counts)
            u = np.minimum(positions + rng.random(len(positions)), np.nextafter(positions + 1.0, 0))
            drawn = np.searchsorted(cdf, u, side="right") - positions * self.n_codes
            always = sure.take(states)
            codes = np.concatenate([drawn, always.indices])
            rows = np.concatenate([np.repeat(rows, counts), np.repeat(rows, always.sizes())])
            parts.append(Records.from_pairs(rows, codes, size, self.n_codes))
        return Records.concatenate(parts)

    def prevalence(self) -> Floats:
        """P(code i), (N,)."""
        return self.state_weights @ self.code_probabilities

    def conditional_prevalence(
        self, all_of: Sequence[int] = (), any_of: Sequence[int] = (), none_of: Sequence[int] = ()
    ) -> tuple[float, Floats]:
        """P(condition), and P(code i | condition) of shape (N,).

        The condition: every code of `all_of`, none of `none_of` and, if `any_of` is not empty, at least one of it.
        """
        self._check_condition(all_of, any_of, none_of)
        required, forbidden, group = (np.unique(np.asarray(c, dtype=np.int64)) for c in (all_of, none_of, any_of))
        p = self.code_probabilities
        weight = self.state_weights * p[:, required].prod(axis=1) * (1 - p[:, forbidden]).prod(axis=1)  # (S,)
        p = p.copy()
        p[:, required], p[:, forbidden] = 1, 0
        # P(group met | s) = 1 - P(none of it | s); a code of the group that is present meets it by itself
        met = 1 - (1 - p[:, group]).prod(axis=1) if len(group) else np.ones(len(weight))  # (S,)
        probability = float(weight @ met)
        if probability == 0:
            raise ConditionError("no record of this population can meet the condition: its probability is 0")
        joint = (weight * met) @ p  # (N,)
        joint[group] = weight @ p[:, group]
        return probability, np.minimum(joint / probability, 1)  # rounding must not lead above 1

    def _check_condition(self, all_of: Sequence[int], any_of: Sequence[int], none_of: Sequence[int]) -> None:
        outside = [c for c in (*all_of, *any_of, *none_of) if not 0 <= c < self.n_codes]
        if outside:
            raise ConditionError(f"code {outside[0]} is outside the vocabulary: codes run from 0 to {self.n_codes - 1}")
        both = sorted(set(all_of) & set(none_of))
        if both:
            raise ConditionError(f"{self.vocabulary[both[0]]} is both required and forbidden")
