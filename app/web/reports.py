"""Reports: which there are, and two side by side."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from app.access import Identity, Reader, Services_
from app.library import Cursor
from app.routers.reports import report_for
from app.services import Services
from app.web import lists
from app.web.shell import page, page_router
from ehr.errors import EhrError
from ehr.reports import FAMILIES, Figure, MetricReport, Report, Verdict
from ehr.shareable import ShareableReport

router = page_router()
TITLES = {family.name: family.title for family in FAMILIES}


@dataclass(frozen=True)
class Measured:
    """One metric in each report; None where it was not measured."""

    family: str
    title: str
    direction: str
    figures: list[Figure | None]
    verdicts: list[Verdict | None]


@router.get("/app/reports")
def show_reports(request: Request, services: Services_, identity: Reader, cursor: Cursor = None) -> Response:
    cohorts = lists.cohorts(services, identity, 10, cursor)
    verdicts = {cohort.job_id: _verdict(services, identity, cohort.job_id) for cohort in cohorts.items}
    return page(request, "reports.html", identity, {"active": "reports", "cohorts": cohorts, "verdicts": verdicts})


@router.get("/app/reports/compare")
def show_comparison(
    request: Request, services: Services_, identity: Reader, id: Annotated[list[str] | None, Query()] = None
) -> Response:
    found = [report_for(services, identity, each, None) for each in dict.fromkeys((id or [])[:4])]
    by_name = [dict(_metrics(report)) for report in found]
    rows = [
        Measured(
            TITLES.get(name[0], "This cohort by itself"),
            next(each[name].title or each[name].name for each in by_name if name in each),
            next(each[name].direction for each in by_name if name in each),
            [_figure(each[name]) if name in each else None for each in by_name],
            [each[name].verdict if name in each else None for each in by_name],
        )
        for name in dict.fromkeys(name for each in by_name for name in each)
    ]
    measured = [row for row in rows if any(figure is not None for figure in row.figures)]
    return page(request, "compare_reports.html", identity, {"active": "reports", "reports": found, "rows": measured})


def _figure(metric: MetricReport) -> Figure | None:
    """The one that is about the cohort: of an attack, how far it gets beyond its control."""
    named = (metric.figures.get(role) for role in ("value", "gain"))
    return next((figure for figure in named if figure is not None and figure.value is not None), None)


def _metrics(report: Report | ShareableReport) -> list[tuple[tuple[str, str], MetricReport]]:
    """By family and name."""
    if isinstance(report, ShareableReport):
        return [(("", key), metric) for key, metric in report.synthetic.metrics.items()]
    families = report.families.items()
    return [((name, key), metric) for name, family in families for key, metric in family.metrics.items()]


def _verdict(services: Services, identity: Identity, job_id: str) -> Verdict | str:
    """Of the report that the reader would see; or why there is none."""
    try:
        return report_for(services, identity, job_id, None, looked_at=False).verdict
    except EhrError:
        return "no report to show yet"
