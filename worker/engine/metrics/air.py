"""Attribute inference: what does someone who knows part of a patient's codes learn about the rest?"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ehr.records import Records
from worker.engine.metrics.attacks import AttackMetric, AttackResult, AttackSets, Roles, certain, sampled
from worker.engine.metrics.intervals import N_BOOTSTRAPS, bootstrapped
from worker.engine.metrics.measurement import Words
from worker.engine.metrics.nearest import distance_blocks
from worker.engine.metrics.verdicts import by_gain

MOST_KNOWN = 256
MAX_TARGETS = 1000
TARGETS_AT_A_TIME = 250


def guessed(targets: Records, cohort: Records, known: NDArray[np.int64], secret: NDArray[np.int64]) -> csr_array:
    """What the attacker says about the secret codes, (T, S) of 0/1.

    The records of the cohort that are nearest on the known codes (L1, all ties) vote; a code is guessed when more than
    half of them have it: their mode.
    """
    cohort_known, cohort_secret = columns(cohort, known), columns(cohort, secret).to_csr(np.float32)
    blocks = []
    for start in range(0, len(targets), TARGETS_AT_A_TIME):
        rows = np.arange(start, min(start + TARGETS_AT_A_TIME, len(targets)))
        queries = columns(targets.take(rows), known)
        d = np.empty((len(rows), len(cohort)), dtype=np.int32)
        for rows_of, base_of, part in distance_blocks(queries, cohort_known):
            d[rows_of, base_of] = part
        nearest = csr_array(d == d.min(axis=1, keepdims=True), dtype=np.float32)  # (T, R)
        votes = (nearest @ cohort_secret).toarray()  # (T, S)
        blocks.append(csr_array(votes > 0.5 * nearest.sum(axis=1)[:, None]))
    return csr_array(np.concatenate([block.toarray() for block in blocks]), dtype=np.float32)


def columns(records: Records, codes: NDArray[np.int64]) -> Records:
    """The same records with only these codes, renumbered in the given order."""
    number = np.full(records.n_codes, -1, dtype=np.int64)
    number[codes] = np.arange(len(codes))
    kept = number[records.indices] >= 0
    rows = np.repeat(np.arange(len(records)), records.sizes())[kept]
    return Records.from_pairs(rows, number[records.indices[kept]], len(records), len(codes))


def weighted_f1(
    hits: NDArray[np.float64], said: NDArray[np.float64], there: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """F1 for each code (last axis), averaged with the codes' weights. A code nobody has and nobody is said to have has
    no F1 and does not count."""
    total = said + there  # 2 TP + FP + FN
    f1 = np.divide(2 * hits, total, out=np.zeros_like(total), where=total > 0)
    counted = weight * (total > 0)
    norm = counted.sum(axis=-1)
    return np.asarray(np.divide((f1 * counted).sum(axis=-1), norm, out=np.zeros_like(norm), where=norm > 0))


def entropy(prevalence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of having a code or not, in nats, (N,)."""
    p = np.clip(prevalence, 1e-12, 1 - 1e-12)
    return np.asarray(-p * np.log(p) - (1 - p) * np.log1p(-p))


def measure(sets: AttackSets, rng: np.random.Generator) -> AttackResult:
    """Weighted F1 on training records, with the cohort and with the control in its place."""
    prevalence = sets.train.prevalence()
    order = np.argsort(-prevalence, kind="stable")
    n_known = min(MOST_KNOWN, len(order) // 2)
    facts = {"known": n_known}
    known, secret = order[:n_known], order[n_known:]
    secret = secret[prevalence[secret] > 0]
    if n_known == 0 or len(secret) == 0:
        return AttackResult(AIR, Roles.missing("there are too few codes to know some and infer others"), {}, facts)
    targets = sampled(sets.members, MAX_TARGETS, rng)
    truth = columns(targets, secret).to_csr(np.float32)  # (T, S)
    weight = entropy(prevalence[secret])
    # (B, T): how often each target is drawn; the first row is every target once
    draws = rng.multinomial(len(targets), np.full(len(targets), 1 / len(targets)), size=N_BOOTSTRAPS)
    drawn = np.concatenate([np.ones((1, len(targets))), draws]).astype(np.float32)
    there = drawn @ truth  # (B + 1, S)
    scores = []
    for cohort in (sets.cohort_at_size, sets.control_at_size):
        said = guessed(targets, cohort, known, secret)
        scores.append(weighted_f1(drawn @ said.multiply(truth).tocsr(), drawn @ said, there, weight))
    share = there[:1] / len(targets)
    blind = weighted_f1(share, np.ones_like(share) * (share > 0), share, weight)
    guess = certain(float(blind[0]), note="saying that everyone has every code")
    roles = Roles.compared(bootstrapped, scores, guess, len(sets.cohort_at_size), sets.size_note)
    note = f"on {MAX_TARGETS:,} random training patients" if len(targets) < len(sets.train) else None
    return AttackResult(AIR, roles.noting(note), {}, facts)


AIR = AttackMetric(
    name="air",
    title="Inferring other codes (F1)",
    meaning="How well someone who knows a training patient's most common codes can guess the patient's other codes "
    "from the most similar synthetic records (F1 score: 1 if all other codes are guessed and no wrong ones, 0 if none "
    "is).",
    rule=by_gain(caution_above=0.01, fail_above=0.05, unsure_above=0.2),
    words=Words(
        good="An attacker who knows {known} of a patient's codes learns nothing more from this cohort than from data "
        "about other people.",
        caution="An attacker who knows {known} of a patient's codes may learn a little more from this cohort than from "
        "data about other people.",
        fail="An attacker who knows {known} of a patient's codes learns other diagnoses of that patient from this "
        "cohort.",
        unsure="There are too few records to rule out that an attacker who knows {known} of a patient's codes "
        "learns more of them from this cohort.",
        advice="Do not share this cohort. Train with more records or fewer passes over them.",
    ),
    measure=measure,
)
