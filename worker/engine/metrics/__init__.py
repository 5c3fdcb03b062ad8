"""Metrics: a new one is one file here and one entry in its family's tuple."""

from collections.abc import Callable, Sequence

import numpy as np

from ehr.errors import ConfigError, DataError
from ehr.records import Records
from worker.engine.independent import independent_records
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.cmd import CMD
from worker.engine.metrics.codes_missing import CODES_MISSING
from worker.engine.metrics.mcad import MCAD
from worker.engine.metrics.measurement import CUT_TO_SIZE, CohortMetric, Measurement, Metric, Result
from worker.engine.metrics.mmd import MMD
from worker.engine.metrics.prevalence_spearman import PREVALENCE_SPEARMAN, PREVALENCE_SPEARMAN_RARE

__all__ = ["FIDELITY", "CohortMetric", "Measurement", "Metric", "Progress", "Result", "fidelity", "fidelity_metric"]

FIDELITY: tuple[CohortMetric, ...] = (
    PREVALENCE_SPEARMAN,
    PREVALENCE_SPEARMAN_RARE,
    CODES_MISSING,
    CMD,
    MMD,
    MCAD,
)

Progress = Callable[[str, int, int], None]  # (name of the metric, measurements done, measurements in all)


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
    progress: Progress | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, Result]:
    """Every fidelity metric (or those in `names`) of `synth` against `test`, each beside its two yardsticks.

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
    cohorts = {
        "value": sampled(synth, size, floor_rng),
        "floor": train.take(floor_rng.choice(len(train), size, replace=False)) if size else train.take([]),
        "independent": independent_records(train.prevalence(), size, independent_rng),
    }
    # a stream per metric in the order of FIDELITY: a metric asked for alone gives the number it has in the full report
    streams = {metric.name: stream for metric, stream in zip(FIDELITY, metric_rngs, strict=True)}
    results: dict[str, Result] = {}
    for metric in chosen:
        measured: dict[str, Measurement] = {}
        for role, cohort in cohorts.items():
            measured[role] = metric.measure(cohort, test, train, streams[metric.name])
            if progress is not None:
                progress(metric.name, len(results) * len(cohorts) + len(measured), len(chosen) * len(cohorts))
        if size < len(synth):
            measured = {role: each.noting(CUT_TO_SIZE) for role, each in measured.items()}
        results[metric.name] = Result(metric, **measured)
    return results
