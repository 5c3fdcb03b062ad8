"""Density ratios on a released cohort: where is it denser than people are, and whose presence would explain it?

Two variants in one low-dimensional projection. DOMIAS (van Breugel et al. 2023): the density of the cohort at a person
over that of people, each by the distance to the k-th nearest record; in d dimensions log p = const - d log(distance).
Gen-LRA (Ward et al. 2025): how much likelier the records nearest to a person are under a density of people that
includes the person than under one that does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import svds
from scipy.special import logsumexp

from ehr.records import Records
from worker.engine.audit.attack import AucLimits, AuditAttack, AuditedModel, Variant
from worker.engine.audit.effort import MOST_WORK, affordable, operations
from worker.engine.audit.people import FEWEST_PEOPLE, AuditSets
from worker.engine.audit.separation import Scores
from worker.engine.generators import SampleRequest
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.measurement import Words

DIMENSIONS = 32
NEAREST = 5
COHORT, SMALLEST_COHORT = 10_000, 1_000  # records that the attacker has, at most and at least;
PER_MEMBER = 4  # and for each training patient, at most
REFERENCE = 5_000  # people whom the attacker knows, at most
BATCH = 512
VARIANTS = ("", "likelihood of nearby records")

Points = NDArray[np.float32]  # (R, D)
Draw = Callable[[int, int], Records]  # so many records of a model, from a seed
# The cohort, people whom the attacker knows, people to score.
Compare = Callable[[Records, Records, Records], Scores]


def measure(model: AuditedModel, rng: np.random.Generator) -> list[Variant]:
    """On a cohort without a condition."""
    return attack_cohort(model.sets, lambda n, seed: model.generator.sample(SampleRequest(n=n, seed=seed)), rng)


def attack_cohort(
    sets: AuditSets, draw: Draw, rng: np.random.Generator, tried: int = 1, more: Mapping[str, Compare] | None = None
) -> list[Variant]:
    """Half of the unseen people are the attacker's idea of how people are, the other half are attacked. What a record
    takes is counted on the first `tried`; `more`: attacks on the records themselves, besides those on densities."""
    compared = dict(more or {})
    names = (*VARIANTS, *compared)
    order = rng.permutation(len(sets.unseen))
    reference, rest = (sets.unseen.take(rows) for rows in np.array_split(order, 2))
    members, _ = sets.people(rng)
    if min(len(members), len(rest)) < FEWEST_PEOPLE:
        return [Variant.missing(name, "there are too few people") for name in names]
    each = operations(lambda: draw(tried, 0)) / tried
    if SMALLEST_COHORT * each > MOST_WORK:
        return [Variant.missing(name, "drawing a cohort of enough records would take too long") for name in names]
    size = min(affordable(each, SMALLEST_COHORT, COHORT), PER_MEMBER * len(sets.train))
    cohort = draw(size, int(rng.integers(2**31)))
    known, others = sampled(reference, REFERENCE, rng), sampled(rest, len(members), rng)
    placed = Placed.of(cohort, known, rng)
    points = placed.at(members), placed.at(others)
    return [
        *(
            Variant(name, score(placed, points[0]), score(placed, points[1]))
            for name, score in zip(VARIANTS, (domias, gen_lra), strict=True)
        ),
        *(
            Variant(name, compare(cohort, known, members), compare(cohort, known, others))
            for name, compare in compared.items()
        ),
    ]


@dataclass(frozen=True)
class Placed:
    """A cohort and people whom the attacker knows, in the projection in which both are compared."""

    axes: NDArray[np.float32]  # (N, D)
    cohort: Points
    reference: Points

    @classmethod
    def of(cls, cohort: Records, reference: Records, rng: np.random.Generator) -> "Placed":
        axes = _axes(Records.concatenate([cohort, reference]), rng)
        return cls(axes, cohort.to_csr() @ axes, reference.to_csr() @ axes)

    def at(self, records: Records) -> Points:
        placed: Points = records.to_csr() @ self.axes
        return placed


def domias(placed: Placed, people: Points) -> Scores:
    """log of the cohort's density over that of people at each person, up to a factor."""
    near, usual = (np.sqrt(_nearest(people, points, NEAREST)[1][:, -1]) for points in (placed.cohort, placed.reference))
    return np.asarray(np.log(usual + 1e-6) - np.log(near + 1e-6), dtype=np.float64)


def gen_lra(placed: Placed, people: Points) -> Scores:
    """log of the likelihood of the cohort's records nearest to each person, if the person were among the known people,
    over the same if not.

    Densities are Gaussian kernels. With n known people and p(s) their summed kernels at s, a person x more makes
    (p(s) + K(s, x)) / (n + 1) of p(s) / n.
    """
    width = _nearest(placed.reference, placed.reference, NEAREST + 1)[1][:, -1]  # each is its own nearest
    precision = 0.5 / max(float(np.median(width)), 1e-9)
    usual = _log_kernels(placed.cohort, placed.reference, precision)
    rows, squared = _nearest(people, placed.cohort, NEAREST)
    gained = np.logaddexp(0.0, -precision * squared - usual[rows])  # (R, k)
    return np.asarray(gained.sum(1), dtype=np.float64)


def _axes(records: Records, rng: np.random.Generator) -> NDArray[np.float32]:
    """Principal axes of standardised codes, (N, D)."""
    share = records.prevalence()
    scale = np.where(share > 0, 1 / np.sqrt(np.maximum(share * (1 - share), 1e-9)), 0.0).astype(np.float32)
    dimensions = min(DIMENSIONS, records.n_codes - 1, len(records) - 1)
    matrix = records.to_csr(np.float32) * scale[None, :]
    _, _, axes = svds(matrix.tocsr(), k=dimensions, rng=rng)
    turned: NDArray[np.float32] = (axes * scale[None, :]).T.astype(np.float32)
    return turned


def _nearest(at: Points, points: Points, k: int) -> tuple[NDArray[np.int64], Scores]:
    """Of each place the k nearest points, nearest first, and the squares of their distances, (R, k)."""
    k, lengths = min(k, len(points)), np.square(points).sum(1)
    rows, squares = [], []
    for part in (at[start : start + BATCH] for start in range(0, len(at), BATCH)):
        squared = lengths - 2 * part @ points.T + np.square(part).sum(1)[:, None]
        nearest = np.argpartition(squared, k - 1, axis=1)[:, :k]
        found = np.maximum(np.take_along_axis(squared, nearest, 1), 0.0)
        order = found.argsort(1)
        rows.append(np.take_along_axis(nearest, order, 1))
        squares.append(np.take_along_axis(found, order, 1).astype(np.float64))
    return np.concatenate(rows), np.concatenate(squares)


def _log_kernels(at: Points, points: Points, precision: float) -> Scores:
    """log of the sum of exp(-precision * squared distance) to all points, (R,)."""
    lengths, found = np.square(points).sum(1), []
    for part in (at[start : start + BATCH] for start in range(0, len(at), BATCH)):
        squared = lengths - 2 * part @ points.T + np.square(part).sum(1)[:, None]
        found.append(logsumexp(-precision * np.maximum(squared, 0.0), axis=1))
    return np.asarray(np.concatenate(found), dtype=np.float64)


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
