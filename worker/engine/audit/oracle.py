"""The conditional oracle, a black box: ask for all codes of a person but one, and read how much more common the one is
among the records that come back than among all records."""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ehr.conditions import Condition
from ehr.errors import EhrError
from ehr.records import Records
from worker.engine.audit.attack import AucLimits, AuditAttack, AuditedModel, Variant, too_few
from worker.engine.audit.people import RAREST, Sides, without
from worker.engine.audit.separation import Scores
from worker.engine.generators import Generator, SampleRequest
from worker.engine.metrics.measurement import Words

BATCH = 256  # people at once
FIRST = 8  # of each side, to see how long it takes
DRAWN = 256  # records for each person, of generators that must be asked by drawing
FEWEST_ASKED = 50  # of each side

# Known codes, and the code asked for: how much more common it is where those are known.
Lift = Callable[[Records, NDArray[np.int64]], Scores]


def measure(model: AuditedModel, rng: np.random.Generator) -> list[Variant]:
    """By how often the left-out code was seen: a random one, the rarest of everyone, rare ones, the rarest ones."""
    sets, lift = model.sets, lift_of(model.generator, model.sets.train.n_codes, rng)
    asked = {
        "a random code": (sets.with_any_code(rng), False),
        "the rarest code": (sets.with_rarest_code(np.inf, rng), False),
        "a code below 0.2 % of records": (sets.with_rarest_code(sets.rare_below, rng), True),
        f"a code of fewer than {RAREST} patients": (sets.with_rarest_code(RAREST, rng), True),
    }
    return [_variant(name, sides, lift, model.seconds / len(asked), rare) for name, (sides, rare) in asked.items()]


def _variant(name: str, sides: Sides, lift: Lift, seconds: float, rare: bool) -> Variant:
    if (reason := too_few(sides)) is not None:
        return Variant.missing(name, reason, rare)
    try:
        members, others = scores(sides, lift, seconds)
    except EhrError:
        return Variant.missing(name, "the generator cannot meet a condition of so many codes", rare)
    if min(len(members), len(others)) < FEWEST_ASKED:
        return Variant.missing(name, "the generator is too slow to be asked about enough people", rare)
    return Variant(name, members, others, rare=rare)


def scores(sides: Sides, lift: Lift, seconds: float = np.inf) -> tuple[Scores, Scores]:
    """Of members and others, as many as there is time for."""
    began, asked = time.monotonic(), 0
    found: tuple[list[Scores], list[Scores]] = ([], [])
    people = ((sides.members, sides.of_members), (sides.others, sides.of_others))
    most = max(len(sides.members), len(sides.others))
    while asked < most:
        step = FIRST if asked == 0 else BATCH if seconds == np.inf else _affordable(began, asked, seconds)
        for (records, codes), each in zip(people, found, strict=True):
            rows = np.arange(asked, min(asked + step, len(records)))
            if len(rows):
                each.append(lift(without(records.take(rows), codes[rows]), codes[rows]))
        if step == 0:
            break
        asked += step
    return np.concatenate(found[0]), np.concatenate(found[1])


def _affordable(began: float, asked: int, seconds: float) -> int:
    """How many people more can be asked about in time; none if it would not be enough of them in the end."""
    passed = time.monotonic() - began
    in_time = int(seconds * asked / max(passed, 1e-9))
    return 0 if in_time < FEWEST_ASKED else max(0, min(BATCH, in_time - asked))


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
    usual = (np.bincount(everyone.indices, minlength=everyone.n_codes) + 0.5) / (len(everyone) + 1)

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
