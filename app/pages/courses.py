"""Pictures of patients over time: a few synthetic ones, the days between visits, visits per patient, how long one code
comes after another, and at which age diseases come first."""

from collections.abc import Iterator

from app.pages import svg
from app.pages.numbers import span
from app.pages.pictures import Picture
from app.pages.timelines import Row, timelines
from ehr.courses import AgePair, Courses, CoursesBeside, OnsetPair, OnsetPoint, SpanPair, SpanShare
from ehr.reports import Report
from ehr.shareable import ShareableReport

BOTH = {"real": "real", "synthetic": "synthetic"}
PATIENTS = (
    " The first patients of this cohort who come more than once; nobody was chosen. Strokes are visits, dots the visits"
    " with the codes that each has most often."
)


def of(report: Report | ShareableReport) -> Courses | CoursesBeside | None:
    return report.pictures.courses if isinstance(report, Report) else report.synthetic.courses


def patients(report: Report | ShareableReport) -> Iterator[Picture]:
    """Timelines of a few synthetic patients."""
    courses = of(report)
    if courses is None or not courses.timelines:
        return
    rows = []
    for number, each in enumerate(courses.timelines, start=1):
        who = ", ".join(each.static)
        shown = "" if len(each.days) == each.visits else f", the first {len(each.days)} shown"
        codes = [(f"{code.code} {report.names.get(code.code, '')}".strip(), code.days) for code in each.codes]
        rows.append(Row(f"{number}. {who or 'patient'} ({each.visits} visits{shown})", each.days, codes))
    drawing = timelines(rows, f"Timelines of {len(rows)} synthetic patients")
    yield Picture(drawing, "Synthetic patients.", PATIENTS, wide=True)


def spans(report: Report | ShareableReport) -> Iterator[Picture]:
    """Days between visits, and visits per patient."""
    courses = of(report)
    if courses is None:
        return
    for lead, found, name, share in (
        ("Days between visits.", courses.gaps, "days since the visit before", "share of visits"),
        ("Visits per patient.", courses.visits, "visits", "share of patients"),
    ):
        if found:
            bins = [(said(each), each.real if isinstance(each, SpanPair) else None, each.synthetic) for each in found]
            beside = isinstance(found[0], SpanPair)
            caption = " Bins that few real patients are in are put together." if beside else ""
            drawing = svg.columns_and_outline(bins, lead.removesuffix("."), name, share)
            yield Picture(drawing, lead, caption, BOTH if beside else {})


def onsets(report: Report | ShareableReport) -> Iterator[Picture]:
    """How long after one code another comes, as shares of those in whom it does."""
    courses = of(report)
    for each in () if courses is None else courses.onsets:
        first, then = report.named(each.first), report.named(each.then)
        points = [(float(p.days), p.real if isinstance(p, OnsetPair) else None, p.synthetic) for p in each.points]
        label = f"Days from {first} to {then}"
        drawing = svg.cumulative(points, label, "days since the first visit with the one", "share with the other")
        caption = f" Of the patients in whom {then} comes after {first}, the share in whom it has come."
        yield Picture(drawing, f"{label}.", caption, BOTH if _beside(each.points[0]) else {})


def ages(report: Report | ShareableReport) -> Iterator[Picture]:
    """At which age diseases come first, as shares of those who have them."""
    courses = of(report)
    for each in () if courses is None else courses.ages:
        name = report.named(each.code)
        points = [(float(p.age), p.real if isinstance(p, AgePair) else None, p.synthetic) for p in each.points]
        drawing = svg.cumulative(points, f"Age at the first visit with {name}", "age in years", "share who have had it")
        caption = (
            f" Of the patients who ever have {name}, the share who have had it by that age. Ages are known by bands:"
            " the middle of the band at the first visit, and the time since."
        )
        beside = isinstance(each.points[0], AgePair)
        yield Picture(drawing, f"Age at onset of {name}.", caption, BOTH if beside else {})


def said(each: SpanShare) -> str:
    return f"{each.first}+" if each.last is None else span(each.first, each.last)


def _beside(point: OnsetPoint) -> bool:
    return isinstance(point, OnsetPair)
