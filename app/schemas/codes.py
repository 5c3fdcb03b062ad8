"""Response bodies about codes and the records that have them."""

from pydantic import Field

from app.schemas.answers import Answer, SupportAnswer


class LabAnswer(Answer):
    """A lab whose values are deciles: a value below the first cut point is `#D1`, one from the ninth on is `#D10`."""

    code: str
    cut_points: list[float]
    unit: str | None = Field(None, description="the unit in which most patients have it, where the upload names one")


class ModelCodeAnswer(Answer):
    code: str
    description: str | None = Field(None, description="what it means; null where that is not known")


class VisitAnswer(Answer):
    gap_days: int = Field(description="since the visit before; 0 at the first")
    codes: list[str]


class PatientAnswer(Answer):
    """A patient over time that the model drew once."""

    static: list[str] = Field(description="what is true at every visit")
    visits: list[VisitAnswer]


class ProbeAnswer(Answer):
    """A few of the records that the model drew once."""

    records: list[list[str]] = Field(description="the codes of each; fewer than asked for where no more satisfy it")
    patients: list[PatientAnswer] = Field(
        default_factory=list, description="of models of histories, instead of records"
    )
    codes: list[ModelCodeAnswer] = Field(description="what the codes of these records mean")
    support: SupportAnswer
    warnings: list[str]


class CodeAnswer(ModelCodeAnswer):
    records: int | None = Field(
        description="records that have it; null where the count may not be shown, and without the scope `data`"
    )
