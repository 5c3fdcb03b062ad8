"""Copies: synthetic records that are identical to a training record."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ehr.records import Records
from worker.engine.metrics.attacks import GAIN_BOUNDS, AttackMetric, AttackResult, AttackSets, Roles, certain
from worker.engine.metrics.intervals import CONFIDENCE
from worker.engine.metrics.measurement import Bounds, Measurement, Words
from worker.engine.metrics.verdicts import by_gain

BOUNDS: Bounds = (0.0, 1.0)


def keys(records: Records) -> Iterator[bytes]:
    """Bytes that two records share exactly when they have the same codes."""
    data = records.indices.tobytes()
    width = records.indices.itemsize
    ends = (records.indptr * width).tolist()
    return (data[start:end] for start, end in pairwise(ends))


def measure(sets: AttackSets, rng: np.random.Generator) -> AttackResult:
    """The share of synthetic records that are in train, at the size of the holdout, beside the share in the holdout.

    Train is larger than the holdout, so it is cut into parts as large as the holdout (a rest that is too small is left
    out) and the shares are averaged: chance has the same opportunities on both sides. A copy is in one part only, so
    the gain counts all parts: it is the share of the cohort that equals a training record beyond chance.
    """
    cohort = list(keys(sets.cohort))
    size = min(len(sets.train), len(sets.holdout))
    order = rng.permutation(len(sets.train))
    parts = [order[start : start + size] for start in range(0, len(order) - size + 1, size)]
    in_part = np.array([_is_in(cohort, sets.train.take(part)) for part in parts])  # (P, n)
    in_holdout = _is_in(cohort, sets.holdout.take(rng.choice(len(sets.holdout), size, replace=False)))
    in_parts = in_part.mean(axis=1)
    attack, control = float(in_parts.mean()), float(in_holdout.mean())
    z, n = float(stats.norm.ppf((1 + CONFIDENCE) / 2)), len(cohort)
    # between parts the real records differ, within one the synthetic records do; one count more keeps 0 uncertain
    spread = float(in_parts.std(ddof=1)) if len(parts) > 1 else 0.0
    of_attack = z * float(np.hypot(spread / np.sqrt(len(parts)), np.sqrt((attack + 1 / n) / n)))
    of_control = z * float(np.hypot(spread, np.sqrt((control + 1 / n) / n)))
    # A record so short that it is in every set by chance is on both sides and adds no noise to their difference.
    paired = float((in_part.mean(axis=0) - in_holdout).std()) / np.sqrt(n) + 1 / n
    between = spread * np.sqrt(1 + 1 / len(parts))
    gain, of_gain = len(parts) * (attack - control), len(parts) * z * float(np.hypot(between, paired))
    roles = Roles(
        Measurement.within(BOUNDS, attack, attack - of_attack, attack + of_attack, n),
        Measurement.within(BOUNDS, control, control - of_control, control + of_control, n),
        certain(0.0, note="a cohort without any copy"),
        Measurement.within(GAIN_BOUNDS, float(np.clip(gain, *GAIN_BOUNDS)), gain - of_gain, gain + of_gain, n),
    )
    in_all = set(keys(sets.train))
    facts = {"identical_to_train": sum(key in in_all for key in cohort), "identical_to_holdout": round(control * n)}
    return AttackResult(EXACT_MATCHES, roles, {}, facts)


def _is_in(cohort: list[bytes], real: Records) -> NDArray[np.bool_]:
    """Whether each of the cohort is one of the real records, (n,)."""
    there = set(keys(real))
    return np.array([key in there for key in cohort], dtype=bool)


EXACT_MATCHES = AttackMetric(
    name="exact_matches",
    title="Copies",
    meaning="The share of synthetic records identical to one of as many training records as there are holdout records; "
    "records with few codes coincide by chance, as the control shows. The gain is the share of the cohort that copies "
    "any training record, beyond chance.",
    rule=by_gain(caution_above=0.0002, fail_above=0.002, unsure_above=0.1),
    words=Words(
        good="Synthetic records equal training records no more often than they equal other people's by chance.",
        caution="Slightly more synthetic records may equal a training record than chance explains.",
        fail="The cohort contains copies of training records.",
        unsure="There are too few records to rule out that the cohort contains copies of training records.",
        advice="Do not share this cohort. The model repeats what it has seen: train with fewer passes or more records.",
    ),
    measure=measure,
)
