"""What is known about the privacy of everything a model makes, once after training.

The audit (`details["audit"]` of the model's row) is what attacks on the model found; the reference cohort
(`details["reference"]`) was held against the training records. Both hold for every cohort of the model, whatever its
size, seed or wording. Models of earlier versions have neither.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from ehr.figures import Figure, Verdict

AUDIT_VERSION = 1
FalsePositives = Literal["0.001", "0.01", "0.1"]  # shares, as JSON has the names of fields


class AuditModel(BaseModel):
    """Fields that this version does not know are passed over: hosts are upgraded one after the other."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class AttackSummary(AuditModel):
    """How well one attack tells members from others, beside its control: the same attack where nothing can be found."""

    name: str
    title: str
    variant: str = Field(
        "", description="of the people or the knowledge, such as `rarest 1 %`; empty: the attack as is"
    )
    auc: Figure = Field(default_factory=Figure, description="0.5 is chance")
    tpr_at: dict[FalsePositives, Figure] = Field(
        default_factory=dict, description="share of true positives, by the share of false positives that is accepted"
    )
    control_auc: Figure = Field(default_factory=Figure)
    control_tpr_at: dict[FalsePositives, Figure] = Field(default_factory=dict)
    accuracy: float | None = Field(None, description="of guessing what is hidden, where that is what the attack does")
    control_accuracy: float | None = Field(None, description="the same about people whom the model has never seen")
    absent: str | None = Field(None, description="why it was not run")


class ModelAudit(AuditModel):
    """What is known about the privacy of everything a model makes."""

    version: int = AUDIT_VERSION
    verdict: Verdict = Field(description="`fail` withholds every cohort of the model until a custodian releases it")
    rare_conditions: Verdict = Field(
        description="of asking for what hardly any patient has; unless it is `good`, such cohorts are withheld too"
    )
    attacks: list[AttackSummary] = Field(default_factory=list)
    seconds: float = 0.0

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Self | None:
        """The audit among a model's details; None if it has none."""
        stored = details.get("audit")
        return None if stored is None else cls.model_validate(stored)


class ReferenceFacts(AuditModel):
    """The records that a model drew once after training, of which estimates are made; they lie in its bundle."""

    records: int = Field(description="that were drawn")
    training_records: int = Field(description="that the model has learned from, rounded to two digits")
    seed: int
    verdict: Verdict | None = Field(None, description="whether they copy training records; null: it was not checked")
    absent: str | None = Field(None, description="why it was not checked, or why there are no records")

    @property
    def may_be_told(self) -> bool:
        """Whether answers may be made of them: what is not known to be harmless is not shown, as with any cohort."""
        return self.verdict is not None and self.verdict.level != "fail"

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Self | None:
        """What a model's details or manifest say of them; None if it has none."""
        stored = details.get("reference")
        return None if stored is None else cls.model_validate(stored)


def withholding_verdict(details: Mapping[str, Any]) -> Verdict | None:
    """The verdict that withholds whatever the model makes; None if there is none."""
    audit, reference = ModelAudit.of(details), ReferenceFacts.of(details)
    found = [None if audit is None else audit.verdict, None if reference is None else reference.verdict]
    return next((verdict for verdict in found if verdict is not None and verdict.level == "fail"), None)
