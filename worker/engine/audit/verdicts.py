"""What the attacks on a model say together.

Many figures are looked at, so each is judged beyond the doubt that all of them leave together (Bonferroni): a model
that remembers nobody is called a failure once in several hundred audits, not once in twenty for each figure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from scipy.stats import norm

from ehr.reports import Verdict, worst
from worker.engine.audit.attack import AucLimits, AuditAttack, Variant
from worker.engine.audit.separation import Separation
from worker.engine.metrics.measurement import Finding

DOUBT = 0.01  # that any figure of a model that remembers nobody is above chance
Measured = tuple[AuditAttack[Any], Variant, Separation | None]  # None: it was not run

FORBIDDEN = Verdict(
    level="caution",
    reason="The terms of this data forbid the attacks that an audit is made of, so nothing is known about what the "
    "model remembers.",
    advice="Whoever is responsible for the data must decide what may be shared.",
)
UNMEASURED = Verdict(
    level="caution",
    reason="There are too few real people to attack the model, so nothing is known about what it remembers.",
    advice="Use a data set with more patients, or with a larger holdout and test share.",
)
CRASHED = Verdict(
    level="fail",
    reason="The audit of the model crashed, so nothing is known about what it remembers.",
    advice="Train again. If it crashes again, the worker's log shows where; share nothing until then.",
)
NO_RARE = Verdict(
    level="caution",
    reason="There are too few people with rare codes to attack, so nothing is known about conditions that hardly any "
    "patient meets.",
    advice="Ask for wider conditions, or have whoever is responsible for the data release each cohort.",
)


def finding(measured: Separation, limits: AucLimits, figures: int) -> Finding:
    """What one variant says when so many figures are looked at."""
    z = float(norm.ppf(1 - DOUBT / max(figures, 1)))
    value, error = measured.auc.value, measured.errors["auc"]
    assert value is not None
    low, high = value - z * error, value + z * error
    # a large area when a small one can be ruled out, as everywhere (metrics/verdicts.py)
    found: list[Finding] = ["good" if low <= limits.caution else "fail" if value > limits.fail else "caution"]
    tpr = measured.tpr_at["0.01"].value
    if tpr is not None:
        least = tpr - z * measured.errors["0.01"]
        found.append("good" if least <= limits.tpr_caution else "fail" if tpr > limits.tpr_fail else "caution")
    for level in ("fail", "caution"):
        if level in found:
            return level
    return "unsure" if high > limits.unsure else "good"


def verdicts(measured: Iterable[Measured]) -> Mapping[str, Verdict]:
    """`verdict` of all attacks, and `rare_conditions` of those on people with rare codes."""
    run = [(attack, variant, each) for attack, variant, each in measured if each is not None]
    figures = 2 * len(run)  # an area and a rate of each
    said = [
        (variant.rare, attack.words.verdict(_accuracy_or(each, attack, variant, figures)))
        for attack, variant, each in run
    ]
    everyone = worst(verdict for _, verdict in said)
    # What a condition gives back is the oracle's question: where it was not asked, other attacks do not answer it.
    asked = any(variant.rare and attack.name == "oracle" for attack, variant, _ in run)
    rare = worst(verdict for is_rare, verdict in said if is_rare) if asked else None
    return {"verdict": everyone or UNMEASURED, "rare_conditions": rare or NO_RARE}


def _accuracy_or(each: Separation, attack: AuditAttack[Any], variant: Variant, figures: int) -> Finding:
    """Hits and misses have an area, but no rate at few false positives."""
    if variant.accuracy:
        each = Separation(each.auc, {"0.01": each.tpr_at["0.01"].__class__(absent="hits and misses")}, each.errors)
    return finding(each, attack.limits, figures)
