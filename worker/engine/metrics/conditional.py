"""A conditioned cohort beside real patients who satisfy the condition."""

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from ehr.conditions import Condition
from ehr.records import Records
from worker.engine.metrics import attainment, ess
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.cmd import SLICE_CMD
from worker.engine.metrics.mcad import SLICE_MCAD
from worker.engine.metrics.measurement import Measurement, Plan, Result, SliceMetric
from worker.engine.metrics.slice_prevalence_l1 import SLICE_PREVALENCE_L1

SLICE: tuple[SliceMetric, ...] = (SLICE_PREVALENCE_L1, SLICE_CMD, SLICE_MCAD)
NO_RECORDS = Measurement(absent="no unconditional records of this model were drawn")


def plan_conditional(
    cohort: Records,
    condition: Condition,
    real: Records,
    unconditional: Callable[[], Records | None],
    rng: np.random.Generator,
    effective: float | None,
) -> Plan[Result]:
    """Attainment, the slice metrics and the effective sample size.

    `real` are unseen records of everyone; `unconditional` gives records of the same model drawn without the condition,
    and is called when they are needed.
    """
    inside = real.take(np.flatnonzero(condition.satisfied_by(real)))

    def imposed() -> Records | None:
        ordinary = unconditional()
        return None if ordinary is None else with_bits_set(ordinary, condition, real)

    return plan_slice(cohort, condition.satisfied_by(cohort), inside, imposed, rng, effective)


def plan_slice(
    cohort: Records,
    satisfied: NDArray[np.bool_],
    inside: Records,
    imposed: Callable[[], Records | None],
    rng: np.random.Generator,
    effective: float | None,
) -> Plan[Result]:
    """The same where it is known which records of the cohort have what was asked for, and which unseen real records are
    `inside`. The slice metrics have `value`, `floor` (half the real slice against the other) and `unconditional`
    (`imposed`: ordinary synthetic records with the asked codes written in).
    """

    @cache
    def places() -> tuple[dict[str, Records | None], Records]:
        """In turn against half B of the real slice: generated records, half A, unconditional records, all of one size,
        because distances shrink with more records; and half B."""
        written_in, generated = imposed(), cohort.take(np.flatnonzero(satisfied))
        a, b = (inside.take(rows) for rows in np.split(rng.permutation(len(inside)), [len(inside) // 2]))
        size = min(len(a), len(generated))
        in_turn = {"value": generated, "floor": a, "unconditional": written_in}
        return {role: None if each is None else sampled(each, size, rng) for role, each in in_turn.items()}, b

    def in_slice(metric: SliceMetric, stream: np.random.Generator) -> Result:
        if len(inside) < metric.fewest:
            absent = Measurement(absent=f"fewer than {metric.fewest} unseen real records satisfy the condition")
            return Result(metric, dict.fromkeys(("value", "floor", "unconditional"), absent))
        in_turn, half = places()
        measured = {
            role: NO_RECORDS if each is None else metric.measure(each, half, half, stream)
            for role, each in in_turn.items()
        }
        return Result(metric, measured)

    attained, share = attainment.measure(int(satisfied.sum()), len(cohort)), ess.measure(effective, len(cohort))
    return [
        (attainment.ATTAINMENT.name, lambda: Result(attainment.ATTAINMENT, {"value": attained})),
        *((m.name, partial(in_slice, m, stream)) for m, stream in zip(SLICE, rng.spawn(len(SLICE)), strict=True)),
        (ess.ESS.name, lambda: Result(ess.ESS, {"value": share})),
    ]


def with_bits_set(records: Records, condition: Condition, real: Records) -> Records:
    """Ordinary records made to satisfy the condition by writing it in: required codes are added, of each group that is
    not met the code most common in reality, and forbidden codes are removed."""
    counts = real.counts()
    rows = np.repeat(np.arange(len(records)), records.sizes())
    kept = ~np.isin(records.indices, sorted(condition.none_of))
    all_rows, all_codes = [rows[kept]], [records.indices[kept].astype(np.int64)]
    groups = [frozenset([code]) for code in sorted(condition.all_of)] + list(condition.any_of)
    for group in groups:
        open_codes = sorted(group - condition.none_of)
        has = Condition.of(records.n_codes, any_of=[group]).satisfied_by(records)
        missing = np.flatnonzero(~has)
        all_rows.append(missing)
        all_codes.append(np.full(len(missing), max(open_codes, key=lambda code: counts[code])))
    return Records.from_pairs(np.concatenate(all_rows), np.concatenate(all_codes), len(records), records.n_codes)
