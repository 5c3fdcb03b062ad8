"""Density ratio on a released cohort (DOMIAS, van Breugel et al. 2023): where is a cohort denser than people are?

Both densities are estimated by the distance to the k-th nearest record in a low-dimensional projection: in d dimensions
log p = const - d log(distance).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from ehr.records import Records
from worker.engine.audit.attack import AucLimits, AuditAttack, AuditedModel, Variant
from worker.engine.audit.people import FEWEST_PEOPLE
from worker.engine.audit.separation import Scores
from worker.engine.generators import SampleRequest
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.measurement import Words

DIMENSIONS = 32
NEAREST = 5
COHORT = 10_000  # records that the attacker has, at most;
PER_MEMBER = 4  # and for each training patient, at most
BATCH = 512


def measure(model: AuditedModel, rng: np.random.Generator) -> list[Variant]:
    """Half of the unseen people are the attacker's idea of how people are, the other half are attacked."""
    order = rng.permutation(len(model.sets.unseen))
    reference, rest = (model.sets.unseen.take(rows) for rows in np.array_split(order, 2))
    members, _ = model.sets.people(rng)
    if min(len(members), len(rest)) < FEWEST_PEOPLE:
        return [Variant.missing("", "there are too few people")]
    cohort = model.generator.sample(
        SampleRequest(n=min(COHORT, PER_MEMBER * len(model.sets.train)), seed=int(rng.integers(2**31)))
    )
    return [Variant("", *scores(cohort, reference, (members, sampled(rest, len(members), rng)), rng))]


def scores(
    cohort: Records, reference: Records, people: tuple[Records, Records], rng: np.random.Generator
) -> tuple[Scores, Scores]:
    """log of the cohort's density over the reference's at each person, of members and others."""
    cohort = sampled(cohort, COHORT, rng)
    axes = _axes(Records.concatenate([cohort, reference]), rng)
    placed = [(records.to_csr() @ axes) for records in (cohort, reference)]
    found = []
    for records in people:
        at = records.to_csr() @ axes
        near, usual = (_distance(at, points) for points in placed)
        found.append(np.asarray(np.log(usual + 1e-6) - np.log(near + 1e-6), dtype=np.float64))
    return found[0], found[1]


def _axes(records: Records, rng: np.random.Generator) -> NDArray[np.float32]:
    """Principal axes of standardised codes, (N, D)."""
    share = records.prevalence()
    scale = np.where(share > 0, 1 / np.sqrt(np.maximum(share * (1 - share), 1e-9)), 0.0).astype(np.float32)
    dimensions = min(DIMENSIONS, records.n_codes - 1, len(records) - 1)
    matrix = records.to_csr(np.float32) * scale[None, :]
    _, _, axes = svds(matrix.tocsr(), k=dimensions, rng=rng)
    turned: NDArray[np.float32] = (axes * scale[None, :]).T.astype(np.float32)
    return turned


def _distance(at: NDArray[np.float32], points: NDArray[np.float32]) -> Scores:
    """To the k-th nearest of the points, (R,)."""
    k = min(NEAREST, len(points)) - 1
    lengths = np.square(points).sum(1)
    parts = [at[start : start + BATCH] for start in range(0, len(at), BATCH)]
    squared = [np.partition(lengths - 2 * part @ points.T, k, axis=1)[:, k] + np.square(part).sum(1) for part in parts]
    return np.asarray(np.sqrt(np.maximum(np.concatenate(squared), 0.0)), dtype=np.float64)


DENSITY_RATIO = AuditAttack(
    name="density_ratio",
    title="Density ratio on a cohort",
    limits=AucLimits(caution=0.54, fail=0.58, unsure=0.66),
    words=Words(
        good="Cohorts are no denser around training patients than around other people.",
        caution="Cohorts are slightly denser around training patients than around other people.",
        fail="Cohorts lie closer to training patients than to other people.",
        unsure="There are too few people to rule out that cohorts lie closer to training patients than to others.",
        advice="Train with more records or fewer passes over them.",
    ),
    measure=measure,
)
