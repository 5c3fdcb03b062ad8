"""Metrics of patients over time: a new one is one file here and one entry in TIME."""

from collections.abc import Mapping, Sequence
from functools import cache, partial

import numpy as np

from ehr.errors import ConfigError, DataError
from ehr.histories import Histories
from worker.engine.metrics.measurement import HistoryMetric, Measurement, Plan, Result
from worker.engine.metrics.time.ks import GAP_KS, VISITS_KS
from worker.engine.metrics.time.next_visit import NEXT_AUROC, NEXT_RECALL, READMISSION
from worker.engine.metrics.time.onset import ONSET
from worker.engine.metrics.time.onset_age import ONSET_AGE
from worker.engine.metrics.time.r2 import NOREPEAT_R2, SIX_R2
from worker.engine.metrics.time.recurrence import RECURRENCE
from worker.engine.metrics.time.yardsticks import shuffled

__all__ = ["TIME", "plan_time"]

TIME: tuple[HistoryMetric, ...] = (
    *SIX_R2,
    *NOREPEAT_R2,
    GAP_KS,
    VISITS_KS,
    RECURRENCE,
    ONSET,
    ONSET_AGE,
    NEXT_RECALL,
    NEXT_AUROC,
    READMISSION,
)


def plan_time(
    synth: Histories,
    test: Histories,
    train: Histories,
    markov: Histories,
    rng: np.random.Generator,
    names: Sequence[str] | None = None,
    others: Mapping[str, Histories] | None = None,
    codes: Sequence[str] | None = None,
) -> Plan[Result]:
    """Every metric of time (or those in `names`) beside its yardsticks: real training patients (`floor`), the same with
    their visits `shuffled`, and patients of a model that knows the last visit only (`markov`). `others` are measured in
    the same way, under their names. `codes`: the vocabulary; without it, what needs to know ages is absent.

    All cohorts have one size, because only values at one size can be compared.
    """
    if not synth.n_codes == test.n_codes == train.n_codes == markov.n_codes:
        raise DataError("the vocabularies of the patients that are compared differ")
    if unknown := sorted(set(names or ()) - {metric.name for metric in TIME}):
        known = ", ".join(metric.name for metric in TIME)
        raise ConfigError(f"there is no metric of time {unknown[0]!r}; known: {known}")
    draw, shuffle, *streams = rng.spawn(2 + len(TIME))
    size = min(len(each) for each in (synth, train, markov, *(others or {}).values()))

    @cache
    def cohorts() -> dict[str, Histories]:
        value, floor, last = (each.take(draw.permutation(len(each))[:size]) for each in (synth, train, markov))
        known = {"value": value, "floor": floor, "markov": last, "shuffled": shuffled(floor, shuffle)}
        return known | {name: each.take(np.arange(size)) for name, each in (others or {}).items()}

    def measure(metric: HistoryMetric, seed: np.random.SeedSequence) -> Result:
        if metric.needs_codes and codes is None:
            return Result(metric, dict.fromkeys(cohorts(), Measurement(absent="what codes mean is not known")))
        known = {"codes": codes} if metric.needs_codes else {}
        # one stream for all cohorts of a metric: what is drawn to measure one is drawn to measure the others
        measured = {
            role: metric.measure(cohort, test, np.random.default_rng(seed), **known)
            for role, cohort in cohorts().items()
        }
        return Result(metric, measured)

    return [
        (metric.name, partial(measure, metric, np.random.SeedSequence(int(stream.integers(2**62)))))
        for metric, stream in zip(TIME, streams, strict=True)
        if names is None or metric.name in names
    ]
