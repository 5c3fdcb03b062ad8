"""The attacks on a cohort, in order."""

from functools import cache, partial

import numpy as np

from ehr.records import Records
from worker.engine.metrics.air import AIR
from worker.engine.metrics.attacks import AttackMetric, AttackResult, AttackSets, Roles
from worker.engine.metrics.dcr import DCR
from worker.engine.metrics.exact_matches import EXACT_MATCHES
from worker.engine.metrics.measurement import Plan
from worker.engine.metrics.mia_tpr_at_fpr import MIA_TPR_AT_FPR
from worker.engine.metrics.mir import MIR
from worker.engine.metrics.nndr import NNDR

PRIVACY: tuple[AttackMetric, ...] = (MIR, MIA_TPR_AT_FPR, AIR, DCR, NNDR, EXACT_MATCHES)


def plan_attacks(
    cohort: Records, train: Records, holdout: Records, control: Records, rng: np.random.Generator
) -> Plan[AttackResult]:
    """Every attack; what they share is prepared by the first. `control`: real records that neither the model nor the
    holdout has."""
    sets_rng, *streams = rng.spawn(1 + len(PRIVACY))

    @cache
    def sets() -> AttackSets:
        return AttackSets(cohort, train, holdout, control, sets_rng)

    def measure(metric: AttackMetric, stream: np.random.Generator) -> AttackResult:
        reason = sets().too_small()
        return metric.measure(sets(), stream) if reason is None else AttackResult(metric, Roles.missing(reason))

    return [(metric.name, partial(measure, metric, stream)) for metric, stream in zip(PRIVACY, streams, strict=True)]
