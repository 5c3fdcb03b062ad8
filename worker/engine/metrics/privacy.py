"""The attacks on a cohort, run one after the other."""

from collections.abc import Callable

import numpy as np

from ehr.records import Records
from worker.engine.metrics.air import AIR
from worker.engine.metrics.attacks import AttackMetric, AttackResult, AttackSets, Roles
from worker.engine.metrics.dcr import DCR
from worker.engine.metrics.exact_matches import EXACT_MATCHES
from worker.engine.metrics.measurement import Verdict
from worker.engine.metrics.mia_tpr_at_fpr import MIA_TPR_AT_FPR
from worker.engine.metrics.mir import MIR
from worker.engine.metrics.nndr import NNDR
from worker.engine.metrics.verdicts import worst

PRIVACY: tuple[AttackMetric, ...] = (MIR, MIA_TPR_AT_FPR, AIR, DCR, NNDR, EXACT_MATCHES)

UNMEASURED = Verdict(
    "fail",
    "No attack could be run, so nothing is known about the privacy of this cohort.",
    "Use a data set with more patients, or with a larger holdout and test share, and evaluate again.",
)


def attack(
    cohort: Records,
    train: Records,
    holdout: Records,
    control: Records,
    rng: np.random.Generator,
    before: Callable[[str], None] = lambda name: None,
) -> dict[str, AttackResult]:
    """Run every attack. `control`: real records that neither the model nor the holdout has. `before` is told the name
    of each attack as it begins."""
    sets_rng, *streams = rng.spawn(1 + len(PRIVACY))
    sets = AttackSets(cohort, train, holdout, control, sets_rng)
    reason = sets.too_small()
    results = {}
    for metric, stream in zip(PRIVACY, streams, strict=True):
        before(metric.name)
        if reason is not None:
            results[metric.name] = AttackResult(metric, Roles.missing(reason))
        else:
            results[metric.name] = metric.measure(sets, stream)
    return results


def privacy_verdict(results: dict[str, AttackResult]) -> Verdict:
    """The worst attack decides; if none could be run, nothing is known, and that fails."""
    return worst(result.verdict for result in results.values()) or UNMEASURED
