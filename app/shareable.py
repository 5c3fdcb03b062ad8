"""The report on a cohort for everyone who does not hold the real records."""

from collections.abc import Iterator, Mapping
from typing import Any

from ehr.reports import FAMILIES, Verdict, worst
from ehr.shareable import CohortDescription, ModelVerdicts, ShareableReport

LEFT_OUT = (
    "Whatever is computed from real records is left out, because it could be asked about cohort after cohort until it"
    " tells about one patient. A key with the scope 'data' sees it."
)
UNJUDGED = Verdict(
    level="caution",
    reason="No cohort of this model was compared with real records: how faithful its records are is not known.",
    advice="Ask someone whose key has the scope 'data' to generate an unconditional cohort, which evaluates the model.",
)
GOOD = Verdict(level="good", reason="No concerns were found about this cohort or its model.", advice="")
TITLES = {family.name: family.title for family in FAMILIES}


def shareable_report(description: CohortDescription, details: Mapping[str, Any]) -> ShareableReport:
    """`details`: of the cohort's model, as its row has them."""
    model = ModelVerdicts.of(details)
    verdict = _overall(dict(_judged(description, model)))
    return ShareableReport(**dict(description), verdict=verdict, model=model, left_out=LEFT_OUT)


def _judged(description: CohortDescription, model: ModelVerdicts) -> Iterator[tuple[str, Verdict]]:
    """What is judged and how, the model first. That it betrays nobody does not make a model good."""
    if "fidelity" not in model.families:
        yield "Model", UNJUDGED
    if model.audit is not None:
        yield "Privacy of the model", model.audit
    asks = description.condition is not None or description.history is not None
    if model.rare_conditions is not None and asks:
        yield "Rare conditions", model.rare_conditions
    for name, verdict in model.families.items():
        yield f"{TITLES.get(name, name)} of the model", verdict
    for metric in description.synthetic.metrics.values():
        if metric.verdict is not None:
            yield metric.title or metric.name, metric.verdict


def _overall(judged: Mapping[str, Verdict]) -> Verdict:
    """The worst decide, and are named."""
    decisive = worst(judged.values())
    if decisive is None or decisive.level == "good":
        return GOOD
    named = {title: verdict for title, verdict in judged.items() if verdict.level == decisive.level}
    reason = " ".join(f"{title}: {verdict.reason}" for title, verdict in named.items())
    advice = " ".join(dict.fromkeys(verdict.advice for verdict in named.values()))
    return Verdict(level=decisive.level, reason=reason, advice=advice)
