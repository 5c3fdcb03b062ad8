"""What the simulated population says exactly, beyond what the service needs of it: the tests' yardstick."""

import difflib

import numpy as np
from numpy.typing import NDArray

from ehr.errors import DataError
from ehr.records import Records
from worker.engine.population import SimulatedPopulation
from worker.engine.population.simulate import Floats

SCORE_BLOCK = 1 << 7  # records scored at a time: few enough for the cache
# stands for log 0 in matrix products, where 0 * -inf would be NaN; a sum this low means "impossible"
LOG_ZERO = -1e30


def index(population: SimulatedPopulation, code: str) -> int:
    """The position of `code` in the vocabulary."""
    if code in population.vocabulary:
        return population.vocabulary.index(code)
    close = difflib.get_close_matches(code, population.vocabulary, n=3)
    hint = f"close to it are {', '.join(close)}" if close else f"codes look like {population.vocabulary[-1]}"
    raise DataError(f"{code} is not in the vocabulary; {hint}")


def pair_probability(population: SimulatedPopulation) -> Floats:
    """P(codes i and j), (N, N); the diagonal is the prevalence."""
    pairs = population.code_probabilities.T @ (population.state_weights[:, None] * population.code_probabilities)
    np.fill_diagonal(pairs, population.prevalence())
    return pairs


def correlation(population: SimulatedPopulation) -> Floats:
    """Pearson correlation of codes i and j, (N, N); 0 where a code never varies."""
    p = population.prevalence()
    deviation = np.sqrt(p * (1 - p))
    scale = np.divide(1, deviation, out=np.zeros_like(p), where=deviation > 0)
    correlation: Floats = (pair_probability(population) - np.outer(p, p)) * np.outer(scale, scale)
    np.fill_diagonal(correlation, 1)
    return correlation


def size_distribution(population: SimulatedPopulation, max_size: int) -> Floats:
    """P(a record has k codes) for k = 0 .. max_size, (max_size + 1,); what is missing to 1 are larger records."""
    if max_size < 0:
        raise DataError(f"the largest size is {max_size} but must be at least 0")
    # Poisson-binomial per state: after code i, f[k, s] = P(k of the codes up to i | s)
    f = np.zeros((max_size + 1, len(population.state_weights)))  # (K + 1, S)
    f[0] = 1
    for p in population.code_probabilities.T:  # (S,)
        present = f[:-1] * p
        f *= 1 - p
        f[1:] += present
    sizes: Floats = f @ population.state_weights
    return sizes


def log_probability(population: SimulatedPopulation, records: Records) -> Floats:
    """log P(record) in nats, (R,); -inf for records that cannot occur."""
    if records.n_codes != population.n_codes:
        raise DataError(f"the records have {records.n_codes} codes, the population has {population.n_codes}")
    # log P(x | s) = sum log(1 - p) + sum over the codes present of log p - log(1 - p): a sparse product.
    # Certain codes would give inf - inf, so they are counted apart: a state needs all of its own.
    p, certain = population.code_probabilities, population.code_probabilities == 1
    absent = np.log1p(-np.where(certain, 0, p))  # (S, N)
    gain = np.ascontiguousarray((_safe_log(p) - absent).T)  # (N, S)
    columns = np.flatnonzero(certain.any(axis=0))  # the demographic codes
    own = certain[:, columns].T.astype(np.float64)  # (columns, S)
    constant = _safe_log(population.state_weights) + absent.sum(axis=1)  # (S,)
    log_p = np.empty(len(records))
    for start in range(0, len(records), SCORE_BLOCK):
        stop = min(start + SCORE_BLOCK, len(records))
        x = records.take(np.arange(start, stop)).to_csr(np.float64)
        log_joint = constant + x @ gain  # (B, S)
        log_joint[x[:, columns].toarray() @ own < own.sum(axis=0)] = LOG_ZERO
        log_p[start:stop] = _log_sum_exp(log_joint)
    return np.where(log_p > LOG_ZERO / 2, log_p, -np.inf)


def exact_x0_probability(population: SimulatedPopulation, observed: NDArray[np.integer], likelihood: Floats) -> Floats:
    """P(x0_i = 1 | observation) of shape (B, N): the best possible denoiser, for any noise on single codes.

    `observed[b, i]` in 0 .. M - 1 is what is seen of code i; `likelihood[i, m, x0]` = P(m is seen | x0_i = x0), up
    to a factor that does not depend on x0. A hidden code is an observation with likelihood 1 for both values.
    """
    observed, likelihood = np.asarray(observed), np.asarray(likelihood, dtype=np.float64)
    _check_evidence(population, observed, likelihood)
    p = population.code_probabilities
    present = [p * likelihood[:, m, 1] for m in range(likelihood.shape[1])]  # M x (S, N), P(m, x0_i = 1 | s)
    total = [a + (1 - p) * likelihood[:, m, 0] for m, a in enumerate(present)]  # M x (S, N), P(m | s)
    seen = [observed == m for m in range(likelihood.shape[1])]  # M x (B, N)
    log_joint = _safe_log(population.state_weights)[None, :].repeat(len(observed), axis=0)  # (B, S)
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


def _check_evidence(population: SimulatedPopulation, observed: NDArray[np.integer], likelihood: Floats) -> None:
    n, m = population.n_codes, likelihood.shape[1] if likelihood.ndim == 3 else 0
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
