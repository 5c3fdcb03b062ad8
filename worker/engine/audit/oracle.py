"""The conditional oracle, a black box: ask for all codes of a person but one, and read how much more common the one is
among the records that come back than among all records."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ehr.conditions import Condition
from ehr.errors import EhrError
from ehr.records import Records
from worker.engine.audit.attack import AucLimits, AuditAttack, AuditedModel, Variant, too_few
from worker.engine.audit.effort import MOST_WORK, affordable, operations
from worker.engine.audit.people import FEWEST_PEOPLE, MOST_PEOPLE, RAREST, Sides, without
from worker.engine.audit.separation import Scores
from worker.engine.generators import Generator, SampleRequest
from worker.engine.metrics.measurement import Words

BATCH = 256  # people at once
FIRST = 8  # of each side, to see how much work they are
VARIANTS = 4
DRAWN, MOST_DRAWN = 256, 200  # records for each person, and people, of generators that must be asked by drawing
CANNOT = "the generator cannot meet a condition of so many codes"

# Known codes, and the code asked for: how much more common it is where those are known.
Lift = Callable[[Records, NDArray[np.int64]], Scores]


def measure(model: AuditedModel, rng: np.random.Generator) -> list[Variant]:
    """By how often the left-out code was seen: a random one, the rarest of everyone, rare ones, the rarest ones."""
    sets, reason, most = model.sets, _too_slow(model.generator), FEWEST_PEOPLE
    if reason is None:
        lift = lift_of(model.generator, sets.train.n_codes, rng)
        most, reason = _most(model, lift, rng)
    asked = {
        "a random code": (sets.with_any_code(rng, most), False),
        "the rarest code": (sets.with_rarest_code(np.inf, rng, most=most), False),
        "a code below 0.2 % of records": (sets.with_rarest_code(sets.rare_below, rng, most=most), True),
        f"a code of fewer than {RAREST} patients": (sets.with_rarest_code(RAREST, rng, most=most), True),
    }
    return [
        _variant(name, sides, lift, rare) if reason is None else Variant.missing(name, reason, rare)
        for name, (sides, rare) in asked.items()
    ]


def _too_slow(generator: Generator) -> str | None:
    """Why a generator that must be asked by drawing is not."""
    if generator.conditional_prevalence() is not None:
        return None
    each = 2 * DRAWN * operations(lambda: generator.sample(SampleRequest(n=1)))
    is_slow = FEWEST_PEOPLE * each > MOST_WORK / VARIANTS
    return "drawing records about enough people would take too long" if is_slow else None


def _most(model: AuditedModel, lift: Lift, rng: np.random.Generator) -> tuple[int, str | None]:
    """How many people of each side are asked about, and why none are."""
    draws = model.generator.conditional_prevalence() is None
    first = model.sets.with_rarest_code(np.inf, rng, most=FIRST)
    if min(len(first.members), len(first.others)) == 0:
        return FEWEST_PEOPLE, too_few(first)
    try:
        work = operations(lambda: scores(first, lift))
    except EhrError:
        return FEWEST_PEOPLE, CANNOT
    return affordable(work / FIRST, FEWEST_PEOPLE, MOST_DRAWN if draws else MOST_PEOPLE), None


def _variant(name: str, sides: Sides, lift: Lift, rare: bool) -> Variant:
    if (reason := too_few(sides)) is not None:
        return Variant.missing(name, reason, rare)
    try:
        return Variant(name, *scores(sides, lift), rare=rare)
    except EhrError:
        return Variant.missing(name, CANNOT, rare)


def scores(sides: Sides, lift: Lift) -> tuple[Scores, Scores]:
    """Of members and others."""
    found = []
    for records, codes in ((sides.members, sides.of_members), (sides.others, sides.of_others)):
        parts = [np.arange(start, min(start + BATCH, len(records))) for start in range(0, len(records), BATCH)]
        found.append(np.concatenate([lift(without(records.take(rows), codes[rows]), codes[rows]) for rows in parts]))
    return found[0], found[1]


def lift_of(generator: Generator, n_codes: int, rng: np.random.Generator) -> Lift:
    """Exact where the generator gives probabilities, else by drawing."""
    prevalence = generator.conditional_prevalence()
    if prevalence is None:
        return _drawn_lift(generator, int(rng.integers(2**31)))
    exact = prevalence
    nothing = exact(Records.from_sets([[]], n_codes))[0]

    def lift(known: Records, codes: NDArray[np.int64]) -> Scores:
        share = exact(known)[np.arange(len(known)), codes]
        return np.asarray(share / np.maximum(nothing[codes], 1e-9), dtype=np.float64)

    return lift


def _drawn_lift(generator: Generator, seed: int) -> Lift:
    """The same by drawing records, for generators that give no probabilities."""
    everyone = generator.sample(SampleRequest(n=4 * BATCH, seed=seed))
    usual = (everyone.counts() + 0.5) / (len(everyone) + 1)

    def lift(known: Records, codes: NDArray[np.int64]) -> Scores:
        found = np.empty(len(known))
        for row in range(len(known)):
            condition = Condition.of(known.n_codes, known.indices[known.indptr[row] : known.indptr[row + 1]].tolist())
            drawn = generator.sample(SampleRequest(n=DRAWN, seed=seed, condition=condition))
            found[row] = ((drawn.indices == codes[row]).sum() + 0.5) / (DRAWN + 1) / usual[codes[row]]
        return found

    return lift


ORACLE = AuditAttack(
    name="oracle",
    title="Conditional oracle",
    limits=AucLimits(caution=0.53, fail=0.57, unsure=0.66),
    words=Words(
        good="Whoever knows all codes of a patient but one learns no more about the last one than of any other person.",
        caution="Conditioned cohorts show slightly more of what training patients have than of other people.",
        fail="Conditioned cohorts betray training patients: whoever knows all their codes but one gets it back.",
        unsure="There are too few people to rule out that conditioned cohorts betray training patients.",
        advice="Train with more records or fewer passes over them, or leave out codes that few patients have.",
    ),
    measure=measure,
)
