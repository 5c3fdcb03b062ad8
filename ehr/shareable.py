"""The form of a report for everyone who does not hold the real records.

A description of a cohort is computed from its synthetic records alone, by code that is given no others; beside it stand
the verdicts of the model, reached once. So whoever asks for however many cohorts learns nothing from their reports that
the cohorts themselves do not tell. What is no field of these classes does not leave.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field

from ehr.audits import ModelAudit
from ehr.conditions import AskedCondition
from ehr.courses import Courses
from ehr.figures import ReportModel
from ehr.history_conditions import AskedHistoryCondition
from ehr.reports import AttainedTarget, MetricReport, NamedCodes, Verdict, is_none


class CodeShare(ReportModel):
    """The share of synthetic records that have a code."""

    code: str
    synthetic: float


class SizeShare(ReportModel):
    """The share of synthetic records with so many codes."""

    codes: int
    synthetic: float


class SyntheticSide(ReportModel):
    """What a cohort's records say about themselves."""

    codes_per_record: float
    codes_present: int = Field(description="codes that at least one record has")
    prevalence: list[CodeShare] = Field(description="of the codes that are present, the commonest first")
    sizes: list[SizeShare]
    metrics: dict[str, MetricReport] = Field(description="those that need no real record; only `value` is measured")
    courses: Courses | None = Field(None, description="of patients over time", exclude_if=is_none)


class CohortDescription(NamedCodes):
    """A cohort by itself."""

    version: Literal[2] = 2
    cohort_id: str
    model_id: str
    dataset_id: str = Field(description="what the model learned from")
    records: int = Field(description="synthetic records")
    codes: int = Field(description="in the vocabulary")
    sampling: Literal["dealt", "independent"] | None = Field(
        None,
        description="`dealt`: a stratified sample; `independent`: each drawn by itself; null in older reports",
    )
    condition: AskedCondition | None = None
    history: AskedHistoryCondition | None = Field(
        None, description="what patients over time must be", exclude_if=is_none
    )
    targets: list[AttainedTarget] = Field(default_factory=list)
    synthetic: SyntheticSide


class ModelReport(ReportModel):
    """What the report on the largest unconditional cohort of a model said, as `details["report"]` of its row has it.

    Only custodians have cohorts evaluated, so whoever may only generate has no say in which cohort that is.
    """

    report_id: str
    records: int
    families: dict[str, Verdict]
    withholds: bool = Field(False, description="whether the cohort may not leave")

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Self | None:
        """The report among a model's details; None if no custodian has had a cohort evaluated."""
        stored = details.get("report")
        return None if stored is None else cls.model_validate(stored)


class ModelVerdicts(ReportModel):
    """What was found out about a model once, whatever is asked of it later."""

    audit: Verdict | None = Field(None, description="of the attacks on the model; null if there was no audit")
    rare_conditions: Verdict | None = Field(None, description="of asking for what hardly any patient has")
    report_id: str | None = Field(None, description="the report on its largest unconditional cohort; null if none")
    families: dict[str, Verdict] = Field(default_factory=dict, description="of that report, by family")

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Self:
        """From a model's details."""
        audit, report = ModelAudit.of(details), ModelReport.of(details)
        return cls(
            audit=None if audit is None else audit.verdict,
            rare_conditions=None if audit is None else audit.rare_conditions,
            report_id=None if report is None else report.report_id,
            families={} if report is None else report.families,
        )


class ShareableReport(CohortDescription):
    """A cohort by itself, and what is known about its model."""

    reader: Literal["shareable"] = "shareable"
    verdict: Verdict
    model: ModelVerdicts
    left_out: str = Field(description="what this report does not show, and who may see it")
