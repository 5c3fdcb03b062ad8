"""What reports and audits are made of: numbers with their intervals, and what they mean."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["good", "caution", "fail"]


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
