"""Metrics: a new one is one file here and one entry in its family's tuple."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from ehr.errors import ConfigError, DataError
from ehr.records import Records
from worker.engine.independent import independent_records
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.cmd import CMD
from worker.engine.metrics.codes_missing import CODES_MISSING
from worker.engine.metrics.mcad import MCAD
from worker.engine.metrics.measurement import CUT_TO_SIZE, CohortMetric, Measurement, Plan, Result
from worker.engine.metrics.mmd import MMD
from worker.engine.metrics.prevalence_spearman import PREVALENCE_SPEARMAN, PREVALENCE_SPEARMAN_RARE

__all__ = ["FIDELITY", "CohortMetric", "Measurement", "Result", "fidelity", "fidelity_metric", "plan_fidelity"]

FIDELITY: tuple[CohortMetric, ...] = (PREVALENCE_SPEARMAN, PREVALENCE_SPEARMAN_RARE, CODES_MISSING, CMD, MMD, MCAD)


def fidelity_metric(name: str) -> CohortMetric:
    """The metric of that name."""
    for metric in FIDELITY:
        if metric.name == name:
            return metric
    known = ", ".join(metric.name for metric in FIDELITY)
    raise ConfigError(f"there is no fidelity metric {name!r}; known: {known}")


def fidelity(
    synth: Records,
    test: Records,
    train: Records,
    rng: np.random.Generator,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
    names: Sequence[str] | None = None,
) -> dict[str, Result]:
    """Every fidelity metric (or those in `names`) of `synth` against `test`, each beside its two yardsticks."""
    plan = plan_fidelity(synth, test, train, rng, names)
    results: dict[str, Result] = {}
    for name, measure in plan:
        results[name] = measure()
        progress(name, len(results), len(plan))
    return results


def plan_fidelity(
    synth: Records, test: Records, train: Records, rng: np.random.Generator, names: Sequence[str] | None = None
) -> Plan[Result]:
    """The measurements of `fidelity`.

    All three cohorts have one size, because distances shrink with more records and only values at one size can be
    compared: where there are fewer training records than synthetic ones, a random part of these is measured.
    """
    if not synth.n_codes == test.n_codes == train.n_codes:
        raise DataError(
            f"the vocabularies differ: {synth.n_codes} codes in synth, {test.n_codes} in test, {train.n_codes} in train"
        )
    chosen = FIDELITY if names is None else [fidelity_metric(name) for name in names]
    floor_rng, independent_rng, *metric_rngs = rng.spawn(2 + len(FIDELITY))
    size = min(len(synth), len(train))

    @cache
    def cohorts() -> dict[str, Records]:
        return {
            "value": sampled(synth, size, floor_rng),
            "floor": train.take(floor_rng.choice(len(train), size, replace=False)) if size else train.take([]),
            "independent": independent_records(train.prevalence(), size, independent_rng),
        }

    def measure(metric: CohortMetric, stream: np.random.Generator) -> Result:
        measured = {role: metric.measure(cohort, test, train, stream) for role, cohort in cohorts().items()}
        if size < len(synth):
            measured = {role: each.noting(CUT_TO_SIZE) for role, each in measured.items()}
        return Result(metric, measured)

    # a stream per metric in the order of FIDELITY: a metric asked for alone gives the number it has in the full report
    streams = {metric.name: stream for metric, stream in zip(FIDELITY, metric_rngs, strict=True)}
    return [(metric.name, partial(measure, metric, streams[metric.name])) for metric in chosen]
