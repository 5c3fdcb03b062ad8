"""Reconstruction: after 1, 10 and 100 conditioned cohorts about the same person, is the code guessed that is hidden?"""

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records
from worker.engine.audit.attack import AucLimits, AuditAttack, AuditedModel, Variant, too_few
from worker.engine.audit.effort import affordable, operations
from worker.engine.audit.people import FEWEST_PEOPLE, without
from worker.engine.audit.separation import Scores
from worker.engine.conditional_prevalence import ConditionalPrevalence
from worker.engine.metrics.measurement import Words

COHORTS = (1, 10, 100)
RECORDS = 100  # of each cohort
MOST = 1000  # people of each side
BATCH = 256


def measure(model: AuditedModel, rng: np.random.Generator) -> list[Variant]:
    """A random code of everyone, and the rarest of people who have a rare one, whatever the number of cohorts."""
    prevalence, sets = model.generator.conditional_prevalence(), model.sets
    each = 0 if prevalence is None else operations(lambda: prevalence(sets.train.take([0])))
    most = affordable(2 * each, FEWEST_PEOPLE, MOST)
    asked = {
        "a random code": (sets.with_any_code(rng, most), False),
        "a rare code": (sets.with_rarest_code(sets.rare_below, rng, most=most), True),
    }
    variants = []
    for name, (sides, rare) in asked.items():
        reason = "the generator gives no probabilities" if prevalence is None else too_few(sides)
        if prevalence is None or reason is not None:
            variants.append(Variant.missing(name, reason or "", rare))
            continue
        usual = prevalence(Records.from_sets([[]], sides.members.n_codes))[0]
        pairs = ((sides.members, sides.of_members), (sides.others, sides.of_others))
        members, others = (hits(prevalence, usual, *side, surprise=rare, rng=rng) for side in pairs)
        for number, cohorts in enumerate(COHORTS):
            said = f"{name}, {cohorts} cohort{'s' if cohorts > 1 else ''}"
            variants.append(Variant(said, members[:, number], others[:, number], rare=rare, accuracy=True))
    return variants


def hits(
    prevalence: ConditionalPrevalence,
    usual: NDArray[np.float32],
    records: Records,
    codes: NDArray[np.int64],
    *,
    surprise: bool,
    rng: np.random.Generator,
) -> Scores:
    """1 where the code that is most common in the cohorts is the hidden one, (R, len(COHORTS)); with `surprise` the one
    that is most common for its usual share (N,), which is how rare codes are found."""
    found = np.zeros((len(records), len(COHORTS)))
    for start in range(0, len(records), BATCH):
        rows = np.arange(start, min(start + BATCH, len(records)))
        known = without(records.take(rows), codes[rows])
        share = prevalence(known).astype(np.float64).clip(0, 1)
        open_codes = known.to_dense(np.uint8) == 0
        counts = np.zeros(share.shape)
        drawn = 0
        for number, cohorts in enumerate(COHORTS):
            # records of a conditioned cohort are independent of each other, so how many have a code is binomial
            counts += rng.binomial((cohorts - drawn) * RECORDS, share)
            drawn = cohorts
            expected = drawn * RECORDS * usual.astype(np.float64)
            seen = (counts - expected) / np.sqrt(expected + 1) if surprise else counts
            guess = np.where(open_codes, seen, -np.inf).argmax(1)
            found[rows, number] = guess == codes[rows]
    return found


RECONSTRUCTION = AuditAttack(
    name="reconstruction",
    title="Reconstruction of a hidden code",
    # The area of hits and misses is half of the gain in accuracy: limits are gains of 2 and of 6 percentage points.
    limits=AucLimits(caution=0.51, fail=0.53, unsure=0.58),
    words=Words(
        good="A hidden code of a training patient is guessed no more often than that of another person.",
        caution="A hidden code of a training patient is guessed slightly more often than that of another person.",
        fail="A hidden code of a training patient is guessed from conditioned cohorts more often than that of others.",
        unsure="There are too few people to rule out that hidden codes of training patients can be guessed.",
        advice="Train with more records or fewer passes over them, or leave out codes that few patients have.",
    ),
    measure=measure,
)
