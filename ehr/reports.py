"""The form of a report that compares a cohort with real records: what a worker writes and custodians of those records
read. What everyone else reads is in shareable.py.

A number that could not be measured is absent with its reason, never 0 or NaN.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from ehr.audits import ModelAudit
from ehr.courses import CoursesBeside
from ehr.figures import Figure as Figure
from ehr.figures import Figures as Figures
from ehr.figures import Level as Level
from ehr.figures import ReportModel
from ehr.figures import Verdict as Verdict
from ehr.history_conditions import AskedHistoryCondition

REPORT_VERSION = 2


def is_none(value: object) -> bool:
    """Of fields that only reports on patients over time have: others are as versions before know them."""
    return value is None


LEVELS: tuple[Level, ...] = ("good", "caution", "fail")  # from best to worst


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
        "time",
        "Time",
        "do patients' courses look real?",
        {"value": "synthetic", "floor": "real patients", "markov": "last visit only", "shuffled": "visits shuffled"},
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


def worst(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """The worst verdict; of several equally bad ones the first. None if there is none."""
    found = [verdict for verdict in verdicts if verdict is not None]
    return max(found, key=lambda verdict: LEVELS.index(verdict.level), default=None)


class Notable(ReportModel):
    """What a figure comes from most: codes that break a rule together, or that give synthetic records away."""

    codes: list[str] = Field(description="codes, or the wildcard of a group")
    note: str = ""
    share: float = Field(description="of the records; for a classifier, of all that it tells by")


class MetricReport(ReportModel):
    """A metric beside its yardsticks.

    `figures` by role. Fidelity: `value`, `floor`, `independent`. Utility: `value` (trained on synthetic records),
    `real` and `shortfall` (real minus value, on the same test records). Conditional: `value`, `floor`,
    `unconditional`. Time: `value`, `floor`, `markov`, `shuffled`. Privacy: `attack`, `control`, `baseline`, `gain`.
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
    notable: list[Notable] = Field(default_factory=list, description="the most notable first; empty in older reports")
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
        None, description="real records that every arm is trained on; null in older reports"
    )
    added: dict[str, int] = Field(default_factory=dict, description="arm -> records added to those")


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
    courses: CoursesBeside | None = Field(None, description="of patients over time", exclude_if=is_none)


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
    """The condition of a conditioned cohort, its codes as the model's vocabulary writes them."""

    all_of: list[str] = Field(default_factory=list)
    any_of: list[list[str]] = Field(default_factory=list)
    none_of: list[str] = Field(default_factory=list)
    support_in_training: int | None = Field(None, description="real training records; null for 1 to 10")


class AskedOverTime(ReportModel):
    """What every patient over time was asked to be."""

    condition: AskedHistoryCondition
    support_in_training: int | None = Field(None, description="real training patients; null for 1 to 10")


class AttainedTarget(ReportModel):
    """A share of the cohort that was asked for, and what came of it."""

    codes: list[str]
    asked: float
    attained: float


class NamedCodes(ReportModel):
    """What has codes in it that people read."""

    names: dict[str, str] = Field(
        default_factory=dict, description="what the codes of condition, targets, labels and pictures are called"
    )

    def named(self, code: str) -> str:
        """`ICD10CM:E84 (Cystic fibrosis)`, or the code alone."""
        return f"{code} ({self.names[code]})" if code in self.names else code


class Report(NamedCodes):
    """What is known about a cohort beside real records, for whoever holds those."""

    reader: Literal["custodian"] = "custodian"
    version: Literal[2] = 2
    job_id: str = Field(description="the evaluation that made it")
    cohort_id: str
    model_id: str
    dataset_id: str = Field(description="the real records it is compared with")
    own_data: bool = Field(description="whether the model learned from that data set")
    records: int = Field(description="synthetic records")
    codes: int = Field(description="in the vocabulary")
    codes_left_out: int = Field(0, description="codes of the cohort that the data set does not know")
    sampling: Literal["dealt", "independent"] | None = Field(
        None,
        description="`dealt`: a stratified sample; `independent`: each drawn by itself; null in older reports",
    )
    condition: Asked | None = None
    history: AskedOverTime | None = Field(None, description="what patients over time must be", exclude_if=is_none)
    targets: list[AttainedTarget] = Field(default_factory=list)
    verdict: Verdict
    fidelity: FamilyReport
    plausible: FamilyReport | None = Field(None, description="null in older reports")
    time: FamilyReport | None = Field(None, description="of patients over time", exclude_if=is_none)
    utility: FamilyReport
    conditional: FamilyReport | None = None
    privacy: FamilyReport
    slice_privacy: FamilyReport | None = Field(None, description="the attacks on patients who meet the condition")
    audit: ModelAudit | None = Field(
        None, description="what attacks on the model found, after training; null for models of earlier versions"
    )
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
