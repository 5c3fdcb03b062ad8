"""A conditioned cohort beside real patients who satisfy the condition."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ehr.conditions import Condition
from ehr.records import Records
from worker.engine.metrics import attainment, ess
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.measurement import CohortMetric, Measurement, Metric, Verdict
from worker.engine.metrics.slice_cmd import SLICE_CMD
from worker.engine.metrics.slice_mcad import SLICE_MCAD
from worker.engine.metrics.slice_prevalence_l1 import SLICE_PREVALENCE_L1

SLICE: tuple[CohortMetric, ...] = (SLICE_PREVALENCE_L1, SLICE_CMD, SLICE_MCAD)
CONDITIONAL: tuple[Metric, ...] = (attainment.ATTAINMENT, *SLICE, ess.ESS)
SMALLEST_SLICE = 200  # fewer real records are no yardstick for a conditioned cohort


@dataclass(frozen=True)
class ConditionalResult:
    """`value`, and for the slice metrics `floor` (half the real slice against the other) and `unconditional` (ordinary
    synthetic records with the asked codes written in)."""

    metric: Metric
    measured: Mapping[str, Measurement]

    @property
    def verdict(self) -> Verdict | None:
        return self.metric.verdict(self.measured)


def conditional(
    cohort: Records,
    condition: Condition,
    real: Records,
    unconditional: Records | None,
    rng: np.random.Generator,
    *,
    effective: float | None = None,
    before: Callable[[str], None] = lambda name: None,
) -> dict[str, ConditionalResult]:
    """Attainment, the slice metrics and the effective sample size.

    `real` are unseen records of everyone; `unconditional` are records of the same model drawn without the condition.
    """
    satisfied = condition.satisfied_by(cohort)
    results: dict[str, ConditionalResult] = {}
    before(attainment.ATTAINMENT.name)
    met = attainment.measure(int(satisfied.sum()), len(cohort))
    results["attainment"] = ConditionalResult(attainment.ATTAINMENT, {"value": met})
    inside = real.take(np.flatnonzero(condition.satisfied_by(real)))
    imposed = None if unconditional is None else with_bits_set(unconditional, condition, real)
    places = _places(cohort.take(np.flatnonzero(satisfied)), inside, imposed, rng)
    for metric, stream in zip(SLICE, rng.spawn(len(SLICE)), strict=True):
        before(metric.name)
        needed = 2 if metric is SLICE_PREVALENCE_L1 else SMALLEST_SLICE
        if len(inside) < needed:
            reason = f"fewer than {needed} unseen real records satisfy the condition"
            measured = dict.fromkeys(("value", "floor", "unconditional"), Measurement(absent=reason))
        else:
            measured = {role: _measured(metric, each, places["half"], stream) for role, each in places.items()}
            measured.pop("half")
        results[metric.name] = ConditionalResult(metric, measured)
    before(ess.ESS.name)
    results["ess"] = ConditionalResult(ess.ESS, {"value": ess.measure(effective, len(cohort))})
    return results


def with_bits_set(records: Records, condition: Condition, real: Records) -> Records:
    """Ordinary records made to satisfy the condition by writing it in: required codes are added, of each group that is
    not met the code most common in reality, and forbidden codes are removed."""
    counts = np.bincount(real.indices, minlength=real.n_codes)
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


def _places(
    generated: Records, inside: Records, imposed: Records | None, rng: np.random.Generator
) -> dict[str, Records | None]:
    """Half B of the real slice, and in turn against it: generated records, half A, unconditional records; all of one
    size, because distances shrink with more records."""
    order = rng.permutation(len(inside))
    a, b = inside.take(order[: len(inside) // 2]), inside.take(order[len(inside) // 2 :])
    size = min(len(a), len(generated))
    value, floor = sampled(generated, size, rng), sampled(a, size, rng)
    return {
        "value": value,
        "floor": floor,
        "unconditional": None if imposed is None else sampled(imposed, size, rng),
        "half": b,
    }


def _measured(
    metric: CohortMetric, cohort: Records | None, real: Records | None, rng: np.random.Generator
) -> Measurement:
    if cohort is None or real is None:
        return Measurement(absent="no unconditional records of this model were drawn")
    return metric.measure(cohort, real, real, rng)
