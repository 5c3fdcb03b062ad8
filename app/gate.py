"""Whether what is asked for will be withheld, as it can be told before anything is made.

A function of the model's bundle and the request: by the records that the model drew once, never by patients. Otherwise
"withheld" and "not withheld" would answer questions about single ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ehr.audits import ModelAudit, ReferenceFacts
from ehr.conditions import Target
from ehr.relaxation import Term
from ehr.support import DrawnOnce, ReferenceCohort, Requirement

NONE_DRAWN = "the model was trained by a version of the service that drew no records to estimate from: train it again"
CUSTODIAN = "the cohort is withheld until a custodian (scope 'data') releases it"


@dataclass(frozen=True)
class Gate:
    """`withholds`: why cohorts of this request may not leave, as a sentence. `warning`: the same for whoever asks."""

    withholds: str | None = None
    warning: str | None = None


def gate_of(
    reference: ReferenceCohort | None,
    facts: ReferenceFacts | None,
    audit: ModelAudit | None,
    fewest_patients: int,
    terms: Sequence[Term],
    targets: Sequence[Target],
) -> Gate:
    """What the number of patients who would satisfy the rarest part of a request means for its cohort."""
    what = "be in one of the parts that its targets divide the cohort into" if targets else "satisfy the condition"
    matching = None if reference is None else smallest_part(reference, terms, targets)
    return gate_by(matching, reference, facts, audit, fewest_patients, f"would {what}")


def gate_by(
    matching: int | None,
    reference: DrawnOnce | None,
    facts: ReferenceFacts | None,
    audit: ModelAudit | None,
    fewest_patients: int,
    what: str,
    drawn: str = "records",
) -> Gate:
    """The same where `matching` of the `drawn` are so; `what`: which patients those are."""
    if fewest_patients == 0:
        return Gate()
    if reference is None or matching is None:
        why = f"how many patients would satisfy what is asked for is not known: {unknown(facts)}"
        return Gate(f"{why[0].upper()}{why[1:]}.", f"{why}; {CUSTODIAN}")
    if matching >= reference.fewest_for(fewest_patients):
        return Gate()
    why = f"by the {drawn} that the model drew once, fewer than {fewest_patients} patients {what}"
    if audit is not None and audit.rare_conditions.level == "good":
        return Gate(None, f"{why}; attacks on this model found that it gives away nobody who has what is rare")
    return Gate(f"{why[0].upper()}{why[1:]}.", f"{why}; {CUSTODIAN}")


def smallest_part(reference: ReferenceCohort, terms: Sequence[Term], targets: Sequence[Target]) -> int:
    """How many drawn records satisfy the condition with the rarest selection of targets met and missed."""
    parts = [term.requirement for term in terms]
    parts += [Requirement(tuple(target.codes), target.share == 1) for target in targets if target.share in (0, 1)]
    return reference.smallest_part(parts, [tuple(target.codes) for target in targets if 0 < target.share < 1])


def unknown(facts: ReferenceFacts | None) -> str:
    """Why the records that a model drew once cannot be asked about."""
    if facts is None:
        return NONE_DRAWN
    if facts.verdict is None:
        return f"whether the records that the model drew copy patients was not checked: {facts.absent}"
    return f"the records that the model drew are withheld: {facts.verdict.reason}"
