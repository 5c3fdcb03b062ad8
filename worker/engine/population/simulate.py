"""The mathematics of the simulated population: a finite mixture of independent codes, so everything is exact.

A record is drawn in two steps: a latent state s (sex, age, conditions) with probability `state_weights[s]`, then every
code i on its own with probability `code_probabilities[s, i]`. All answers below are sums over the S states.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ehr.errors import ConditionError, DataError
from ehr.records import Records

Floats = NDArray[np.float64]

# records drawn or scored at a time: large enough for numpy, small enough for the cache
SAMPLE_BLOCK, SCORE_BLOCK = 1 << 16, 1 << 7
# stands for log 0 in matrix products, where 0 * -inf would be NaN; a sum this low means "impossible"
LOG_ZERO = -1e30


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

    def index(self, code: str) -> int:
        """The position of `code` in the vocabulary."""
        if code in self.vocabulary:
            return self.vocabulary.index(code)
        close = difflib.get_close_matches(code, self.vocabulary, n=3)
        hint = f"close to it are {', '.join(close)}" if close else f"codes look like {self.vocabulary[-1]}"
        raise DataError(f"{code} is not in the vocabulary; {hint}")

    # ---- sampling

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
        for start, stop in _blocks(n, SAMPLE_BLOCK):
            states = rng.choice(len(events), size=stop - start, p=self.state_weights)
            rows = np.argsort(states)  # records of one state together: the search below stays in the cache
            states = states[rows]
            counts = rng.poisson(events[states])
            positions = np.repeat(states, counts)
            u = np.minimum(positions + rng.random(len(positions)), np.nextafter(positions + 1.0, 0))
            drawn = np.searchsorted(cdf, u, side="right") - positions * self.n_codes
            always = sure.take(states)
            codes = np.concatenate([drawn, always.indices])
            rows = np.concatenate([np.repeat(rows, counts), np.repeat(rows, always.sizes())])
            parts.append(Records.from_pairs(rows, codes, stop - start, self.n_codes))
        return Records.concatenate(parts)

    # ---- moments

    def prevalence(self) -> Floats:
        """P(code i), (N,)."""
        return self.state_weights @ self.code_probabilities

    def pair_probability(self) -> Floats:
        """P(codes i and j), (N, N); the diagonal is the prevalence."""
        pairs = self.code_probabilities.T @ (self.state_weights[:, None] * self.code_probabilities)
        np.fill_diagonal(pairs, self.prevalence())
        return pairs

    def correlation(self) -> Floats:
        """Pearson correlation of codes i and j, (N, N); 0 where a code never varies."""
        p = self.prevalence()
        deviation = np.sqrt(p * (1 - p))
        scale = np.divide(1, deviation, out=np.zeros_like(p), where=deviation > 0)
        correlation: Floats = (self.pair_probability() - np.outer(p, p)) * np.outer(scale, scale)
        np.fill_diagonal(correlation, 1)
        return correlation

    def size_distribution(self, max_size: int) -> Floats:
        """P(a record has k codes) for k = 0 .. max_size, (max_size + 1,); what is missing to 1 are larger records."""
        if max_size < 0:
            raise DataError(f"the largest size is {max_size} but must be at least 0")
        # Poisson-binomial per state: after code i, f[k, s] = P(k of the codes up to i | s)
        f = np.zeros((max_size + 1, len(self.state_weights)))  # (K + 1, S)
        f[0] = 1
        for p in self.code_probabilities.T:  # (S,)
            present = f[:-1] * p
            f *= 1 - p
            f[1:] += present
        sizes: Floats = f @ self.state_weights
        return sizes

    # ---- conditions and evidence

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

    def log_probability(self, records: Records) -> Floats:
        """log P(record) in nats, (R,); -inf for records that cannot occur."""
        if records.n_codes != self.n_codes:
            raise DataError(f"the records have {records.n_codes} codes, the population has {self.n_codes}")
        # log P(x | s) = sum log(1 - p) + sum over the codes present of log p - log(1 - p): a sparse product.
        # Certain codes would give inf - inf, so they are counted apart: a state needs all of its own.
        p, certain = self.code_probabilities, self.code_probabilities == 1
        absent = np.log1p(-np.where(certain, 0, p))  # (S, N)
        gain = np.ascontiguousarray((_safe_log(p) - absent).T)  # (N, S)
        columns = np.flatnonzero(certain.any(axis=0))  # the demographic codes
        own = certain[:, columns].T.astype(np.float64)  # (columns, S)
        constant = _safe_log(self.state_weights) + absent.sum(axis=1)  # (S,)
        log_p = np.empty(len(records))
        for start, stop in _blocks(len(records), SCORE_BLOCK):
            x = records.take(np.arange(start, stop)).to_csr(np.float64)
            log_joint = constant + x @ gain  # (B, S)
            log_joint[x[:, columns].toarray() @ own < own.sum(axis=0)] = LOG_ZERO
            log_p[start:stop] = _log_sum_exp(log_joint)
        return np.where(log_p > LOG_ZERO / 2, log_p, -np.inf)

    def exact_x0_probability(self, observed: NDArray[np.integer], likelihood: Floats) -> Floats:
        """P(x0_i = 1 | observation) of shape (B, N): the best possible denoiser, for any noise on single codes.

        `observed[b, i]` in 0 .. M - 1 is what is seen of code i; `likelihood[i, m, x0]` = P(m is seen | x0_i = x0), up
        to a factor that does not depend on x0. A hidden code is an observation with likelihood 1 for both values.
        """
        observed, likelihood = np.asarray(observed), np.asarray(likelihood, dtype=np.float64)
        self._check_evidence(observed, likelihood)
        p = self.code_probabilities
        present = [p * likelihood[:, m, 1] for m in range(likelihood.shape[1])]  # M x (S, N), P(m, x0_i = 1 | s)
        total = [a + (1 - p) * likelihood[:, m, 0] for m, a in enumerate(present)]  # M x (S, N), P(m | s)
        seen = [observed == m for m in range(likelihood.shape[1])]  # M x (B, N)
        log_joint = _safe_log(self.state_weights)[None, :].repeat(len(observed), axis=0)  # (B, S)
        for mask, mixture in zip(seen, total, strict=True):
            log_joint += mask.astype(np.float64) @ _safe_log(mixture).T
        evidence = _log_sum_exp(log_joint)  # (B,)
        if np.any(evidence < LOG_ZERO / 2):
            row = int(np.argmax(evidence < LOG_ZERO / 2))
            raise DataError(f"observation {row} cannot come from any record of this population")
        posterior = np.exp(log_joint - evidence[:, None])  # (B, S), P(s | observation)
        x0 = np.empty(observed.shape)
        for mask, joint, mixture in zip(seen, present, total, strict=True):
            # P(x0_i = 1 | s, m); where m is impossible in s the posterior of s is 0 and the value does not matter
            share = np.divide(joint, mixture, out=np.zeros_like(joint), where=mixture > 0)
            np.copyto(x0, posterior @ share, where=mask)
        return np.clip(x0, 0, 1)

    def _check_condition(self, all_of: Sequence[int], any_of: Sequence[int], none_of: Sequence[int]) -> None:
        outside = [c for c in (*all_of, *any_of, *none_of) if not 0 <= c < self.n_codes]
        if outside:
            raise ConditionError(f"code {outside[0]} is outside the vocabulary: codes run from 0 to {self.n_codes - 1}")
        both = sorted(set(all_of) & set(none_of))
        if both:
            raise ConditionError(f"{self.vocabulary[both[0]]} is both required and forbidden")

    def _check_evidence(self, observed: NDArray[np.integer], likelihood: Floats) -> None:
        n, m = self.n_codes, likelihood.shape[1] if likelihood.ndim == 3 else 0
        if likelihood.shape != (n, m, 2) or np.any(likelihood < 0):
            raise DataError(f"the likelihood must be non-negative and of shape ({n}, kinds of observation, 2)")
        if observed.ndim != 2 or observed.shape[1] != n or not np.issubdtype(observed.dtype, np.integer):
            raise DataError(f"the observations must be integers of shape (batch, {n})")
        if observed.size and (observed.min() < 0 or observed.max() >= m):
            raise DataError(f"observations run from 0 to {m - 1}")


def _safe_log(p: Floats) -> Floats:
    """log p, with `LOG_ZERO` for log 0."""
    return np.log(p, out=np.full_like(p, LOG_ZERO), where=p > 0)


def _log_sum_exp(x: Floats) -> Floats:
    """log sum exp over the last axis; SciPy's takes more than twice the time for its corner cases."""
    highest = x.max(axis=-1)
    total: Floats = highest + np.log(np.exp(x - highest[..., None]).sum(axis=-1))
    return total


def _blocks(n: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of consecutive blocks that cover 0 to n."""
    return ((start, min(start + size, n)) for start in range(0, n, size))
