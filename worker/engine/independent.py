"""Records whose codes know nothing of each other: what knowing only the prevalences gives."""

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records


def independent_records(prevalence: NDArray[np.float64], n: int, rng: np.random.Generator) -> Records:
    """Draw `n` records that have code i with probability `prevalence[i]`, each code independently of the others.

    A code's number of positives is Binomial(n, p_i) and given that number every choice of rows is equally likely, so
    time and memory follow the positives instead of the n x N coin tosses.
    """
    positives = rng.binomial(n, prevalence)  # (N,)
    rows = [rng.choice(n, size=count, replace=False, shuffle=False) for count in positives if count]
    codes = np.repeat(np.arange(len(prevalence)), positives)
    return Records.from_pairs(np.concatenate([np.empty(0, dtype=np.int64), *rows]), codes, n, len(prevalence))


def independent_log_loss(prevalence: NDArray[np.float64], test: Records) -> tuple[float, float]:
    """Exact nats per test record, and their standard error, when every code is drawn by itself with its prevalence."""
    p = prevalence.clip(1e-6, 1 - 1e-6)
    gain = np.append(np.log(p) - np.log1p(-p), 0.0)  # of having a code over not having it
    per_code = np.concatenate([[0.0], np.cumsum(gain[test.indices])])
    nats = -np.log1p(-p).sum() - (per_code[test.indptr[1:]] - per_code[test.indptr[:-1]])  # (R,)
    return float(nats.mean()), float(nats.std(ddof=1) / np.sqrt(len(test)))
