"""What a report shows of patients over time: a few synthetic patients, the days between visits, how long one code comes
after another. Classes with `real` are for whoever holds the real records; the others are made of synthetic patients."""

from pydantic import Field

from ehr.figures import ReportModel


class TimelineCode(ReportModel):
    code: str
    days: list[int] = Field(description="of the visits that have it, from the patient's first visit on")


class Timeline(ReportModel):
    """A synthetic patient."""

    static: list[str] = Field(description="what is true at every visit, such as sex and age band at the first")
    days: list[int] = Field(description="of the visits, from the first on")
    visits: int = Field(description="of the patient; more than `days` where those that follow are left out")
    codes: list[TimelineCode] = Field(description="the codes at most visits, in the order in which they come first")


class SpanShare(ReportModel):
    """The share of gaps of `first` to `last` days, or of patients with so many visits."""

    first: int
    last: int | None = Field(description="null: no end")
    synthetic: float


class SpanPair(SpanShare):
    real: float


class OnsetPoint(ReportModel):
    days: int
    synthetic: float


class OnsetPair(OnsetPoint):
    real: float


class Onset(ReportModel):
    """Of the patients in whom one code comes first after another: the share in whom it has come after so many days."""

    first: str
    then: str
    points: list[OnsetPoint]


class OnsetBeside(ReportModel):
    """The same beside real patients; steps of fewer than 11 of those are put together."""

    first: str
    then: str
    points: list[OnsetPair]


class AgePoint(ReportModel):
    age: int
    synthetic: float


class AgePair(AgePoint):
    real: float


class AgeOnset(ReportModel):
    """Of the patients who ever have a code: the share who have had it by an age, as far as age bands tell."""

    code: str
    points: list[AgePoint]


class AgeOnsetBeside(ReportModel):
    """The same beside real patients; steps of fewer than 11 of those are put together."""

    code: str
    points: list[AgePair]


class Courses(ReportModel):
    """Of synthetic patients by themselves."""

    visits_per_patient: float
    timelines: list[Timeline] = Field(default_factory=list)
    gaps: list[SpanShare] = Field(default_factory=list)
    visits: list[SpanShare] = Field(default_factory=list)
    onsets: list[Onset] = Field(default_factory=list)
    ages: list[AgeOnset] = Field(default_factory=list)


class CoursesBeside(ReportModel):
    """Of synthetic patients beside real ones; bins that few real patients are in are put together."""

    timelines: list[Timeline] = Field(default_factory=list, description="of synthetic patients only")
    gaps: list[SpanPair] = Field(default_factory=list)
    visits: list[SpanPair] = Field(default_factory=list)
    onsets: list[OnsetBeside] = Field(default_factory=list)
    ages: list[AgeOnsetBeside] = Field(default_factory=list)
