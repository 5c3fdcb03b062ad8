"""What the metrics of a family say together, and what the families say about the cohort."""

from collections.abc import Collection, Iterable, Mapping

from ehr.audits import ModelAudit
from ehr.reports import FAMILIES, FamilyReport, MetricReport, Verdict, worst
from worker.engine.metrics.attacks import AttackResult

Judged = MetricReport | AttackResult
AUDIT = "audit"

CRASHED = Verdict(
    level="fail",
    reason="The privacy evaluation crashed, so nothing is known about the privacy of this cohort.",
    advice="Evaluate again. If it crashes again, the worker's log shows where; do not share the cohort until then.",
)

FORBIDDEN = Verdict(
    level="caution",
    reason="The terms of this data forbid the attacks that would measure privacy, so nothing is known about it.",
    advice="Whoever is responsible for the data must decide whether the cohort may be shared.",
)
TOO_FEW = Verdict(
    level="caution",
    reason="There are too few real patients with this condition to attack them alone: whether the cohort betrays them "
    "is not known.",
    advice="Share it as carefully as their records, or ask for a wider condition.",
)
UNMEASURED = Verdict(
    level="fail",
    reason="No attack could be run, so nothing is known about the privacy of this cohort.",
    advice="Use a data set with more patients, or with a larger holdout and test share, and evaluate again.",
)
PARTLY = Verdict(
    level="caution",
    reason="Some attacks could not be run, because there are too few real patients: their outcome is not known.",
    advice="Evaluate against a data set with more patients, or share the cohort as carefully as their records.",
)
NO_COMPARISON = Verdict(
    level="caution",
    reason="There are too few real patients to compare this cohort with, so whether it resembles them is not known.",
    advice="Use a larger data set, or ask for a wider condition.",
)


def family_verdict(metrics: Iterable[Judged]) -> Verdict | None:
    """The worst metric decides; None if none could be measured."""
    found = [metric.verdict for metric in metrics if metric.verdict is not None]
    decisive = worst(found)
    if decisive is None or decisive.level != "good":
        return decisive
    return found[0].model_copy(update={"reason": " ".join(dict.fromkeys(verdict.reason for verdict in found[:3]))})


def attacks_verdict(attacks: Collection[Judged]) -> Verdict:
    """The same for attacks: what could not be run is no good news."""
    verdict = family_verdict(attacks) or UNMEASURED
    return PARTLY if verdict.level == "good" and any(each.verdict is None for each in attacks) else verdict


def overall_verdict(families: Mapping[str, FamilyReport], audit: ModelAudit | None = None) -> Verdict:
    """The worst families decide, and are named; so does an audit that the model fails."""
    judged = {name: family.verdict for name, family in families.items() if family.verdict is not None}
    if audit is not None and audit.verdict.level == "fail":
        judged[AUDIT] = audit.verdict
    if not judged:
        return Verdict(level="caution", reason="Nothing could be measured.", advice="Use a larger data set.")
    decisive = worst(judged.values())
    assert decisive is not None
    if decisive.level == "good":
        if "fidelity" not in judged:  # that all records meet the condition does not make them like real ones
            return NO_COMPARISON
        names = _listed([family.title.lower() for family in FAMILIES if family.name in judged])
        unknown = "" if "privacy" in judged else " Its privacy is not judged here."
        return Verdict(level="good", reason=f"No concerns were found about this cohort in {names}.{unknown}", advice="")
    titles = {family.name: family.title for family in FAMILIES} | {AUDIT: "Audit of the model"}
    decisive_ones = {titles[name]: verdict for name, verdict in judged.items() if verdict.level == decisive.level}
    reason = " ".join(f"{title}: {verdict.reason}" for title, verdict in decisive_ones.items())
    advice = " ".join(dict.fromkeys(verdict.advice for verdict in decisive_ones.values()))
    return Verdict(level=decisive.level, reason=reason, advice=advice)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def privacy_verdict(families: Mapping[str, FamilyReport]) -> Verdict | None:
    """The worse of the attacks on everyone and on the slice; None if the cohort was not to be attacked."""
    return worst(families[name].verdict for name in ("privacy", "slice_privacy") if name in families)
