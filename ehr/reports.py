"""The form of a report: what a worker writes, the service serves and `docs/report.schema.json` publishes.

A figure of real patients is in a report only if it may be shown: see disclosure.py. A number that could not be
measured is absent with its reason, never 0 or NaN.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

REPORT_VERSION = 2
Level = Literal["good", "caution", "fail"]


@dataclass(frozen=True)
class Family:
    """Metrics that answer one question about a cohort; `name` is the field of the report."""

    name: str
    title: str
    question: str
    columns: dict[str, str]  # role of a figure -> what a table calls it

    @property
    def heading(self) -> str:
        return f"{self.title}: {self.question}" if self.question else self.title


_OF_ATTACKS = {"attack": "attack", "control": "control", "baseline": "guessing", "gain": "gain over control"}
FAMILIES: tuple[Family, ...] = (
    Family(
        "fidelity",
        "Fidelity",
        "is it like real data?",
        {"value": "synthetic", "floor": "real records", "independent": "independent codes"},
    ),
    Family(
        "plausible",
        "Plausibility",
        "could it be patients?",
        {"value": "synthetic", "floor": "real records"},
    ),
    Family(
        "utility",
        "Utility",
        "can one learn from it?",
        {"value": "trained on synthetic", "real": "trained on real", "shortfall": "lost"},
    ),
    Family(
        "conditional",
        "Condition",
        "is it what was asked for?",
        {"value": "synthetic", "floor": "real records", "unconditional": "codes written in"},
    ),
    Family("privacy", "Privacy", "does it betray anyone?", _OF_ATTACKS),
    Family("slice_privacy", "Privacy of patients with the condition", "", _OF_ATTACKS),
)


class ReportModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Verdict(ReportModel):
    """How good it is, why, and what to do."""

    level: Level
    reason: str
    advice: str


class Figure(ReportModel):
    """A value with its 95 % interval, or `absent` with the reason."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    absent: str | None = None
    note: str | None = Field(None, description="how it was measured, where that differs from the plain definition")
    n_used: int | None = Field(None, description="synthetic records that entered")


Figures = dict[str, Figure]


class MetricReport(ReportModel):
    """A metric beside its yardsticks.

    `figures` by role. Fidelity: `value`, `floor`, `independent`. Utility: `value` (trained on synthetic records),
    `real` and `shortfall` (real minus value, on the same test records). Conditional: `value`, `floor`,
    `unconditional`. Privacy: `attack`, `control`, `baseline`, `gain`.
    """

    name: str
    title: str = Field("", description="short name for people; empty in older reports")
    label: str | None = Field(None, description="what is predicted, for utility")
    meaning: str
    direction: Literal["higher", "lower"] = Field(description="which way is better")
    bounds: tuple[float | None, float | None]
    figures: Figures
    variants: dict[str, Figures] = Field(default_factory=dict, description="the same attack in other settings")
    facts: dict[str, float] = Field(default_factory=dict)
    verdict: Verdict | None = Field(None, description="null if it could not be measured")


class FamilyReport(ReportModel):
    """All metrics of a family and what they say together."""

    verdict: Verdict | None = Field(None, description="null if nothing was measured and nothing depends on it")
    absent: str | None = Field(None, description="why nothing was measured")
    against: str = Field(description="what the cohort is compared with")
    metrics: dict[str, MetricReport] = Field(default_factory=dict)


class AugmentationReport(ReportModel):
    """A classifier for `label` after training on few real records, alone and with others added."""

    label: str
    arms: dict[str, Figures] = Field(description="arm -> auroc and auprc")
    real_records: int | None = Field(
        None, description="real records that every arm is trained on, rounded to 20; null in older reports"
    )
    added: dict[str, int] = Field(
        default_factory=dict, description="arm -> records added to those; real ones are rounded to 20"
    )


class PrevalencePoint(ReportModel):
    """The share of real and of synthetic records that have a code."""

    code: str
    real: float
    synthetic: float
    rare: bool = Field(description="below the median of the real prevalences")


class SizeBin(ReportModel):
    """The share of records with `first` to `last` codes."""

    first: int
    last: int
    real: float
    synthetic: float


class CorrelationPoint(ReportModel):
    """How strongly two codes go together."""

    codes: tuple[str, str]
    real: float
    synthetic: float


class GuidedBar(ReportModel):
    """How common a code is: in real records, in unconditional synthetic ones, and in the conditioned cohort."""

    code: str
    description: str | None
    real: float | None = Field(description="null where the number of patients may not be shown")
    unconditional: float | None
    guided: float
    asked: bool = Field(description="the condition names it; then `real` is among all real records, else in the slice")


class Pictures(ReportModel):
    prevalence: list[PrevalencePoint] = Field(default_factory=list)
    codes_not_shown: int = Field(0, description="codes whose number of real patients may not be shown")
    sizes: list[SizeBin] = Field(default_factory=list)
    correlation: list[CorrelationPoint] = Field(default_factory=list)
    guided: list[GuidedBar] = Field(default_factory=list)


class CodeRow(ReportModel):
    code: str
    description: str | None
    real: float | None = Field(description="share of real records; null where it may not be shown")
    synthetic: float


class GroupRow(ReportModel):
    """Codes per 100 records of a chapter or category, over the codes whose numbers may be shown."""

    name: str
    description: str | None = None
    codes: int
    real: float
    synthetic: float


class DrillDown(ReportModel):
    chapters: list[GroupRow] = Field(default_factory=list)
    categories: list[GroupRow] = Field(default_factory=list, description="ICD codes cut to their category")
    most_off: list[CodeRow] = Field(default_factory=list, description="the twenty codes that are off the most")
    missing: list[CodeRow] = Field(default_factory=list, description="in training records and in no synthetic one")
    missing_total: int = 0


class Asked(ReportModel):
    """The condition of a conditioned cohort, as it was written."""

    all_of: list[str] = Field(default_factory=list)
    any_of: list[list[str]] = Field(default_factory=list)
    none_of: list[str] = Field(default_factory=list)
    support_in_training: int | None = Field(None, description="real training records, rounded; null if not to be shown")


class AttainedTarget(ReportModel):
    """A share of the cohort that was asked for, and what came of it."""

    codes: list[str]
    asked: float
    attained: float


class Report(ReportModel):
    """What is known about a cohort."""

    version: Literal[2] = 2
    job_id: str = Field(description="the evaluation that made it")
    cohort_id: str
    model_id: str
    dataset_id: str = Field(description="the real records it is compared with")
    own_data: bool = Field(description="whether the model learned from that data set")
    records: int = Field(description="synthetic records")
    codes: int = Field(description="in the vocabulary")
    codes_left_out: int = Field(0, description="codes of the cohort that the data set does not know")
    condition: Asked | None = None
    targets: list[AttainedTarget] = Field(default_factory=list)
    verdict: Verdict
    fidelity: FamilyReport
    plausible: FamilyReport | None = Field(None, description="null in older reports")
    utility: FamilyReport
    conditional: FamilyReport | None = None
    privacy: FamilyReport
    slice_privacy: FamilyReport | None = Field(None, description="the attacks on patients who meet the condition")
    augmentation: list[AugmentationReport] = Field(default_factory=list)
    pictures: Pictures
    drill_down: DrillDown
    seconds: dict[str, float] = Field(description="what each metric took")
    small_cells: str = "counts of 1 to 10 patients are not shown"

    @property
    def families(self) -> dict[str, FamilyReport]:
        """Those that this report has, by name."""
        found = {family.name: getattr(self, family.name) for family in FAMILIES}
        return {name: family for name, family in found.items() if family is not None}


def report_schema() -> dict[str, Any]:
    """The JSON schema of a report, as it is served."""
    schema = Report.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:ehr-d3pm:report:2", **schema}


def schema_text() -> str:
    """What stands in docs/report.schema.json; `python -m ehr.reports > docs/report.schema.json` writes it."""
    return json.dumps(report_schema(), indent=2) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
