"""Reports as pages: self-contained documents from the templates in this package. No script, nothing to load."""

from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.pages import courses, notes, pictures
from app.pages.codes import asked_for, named
from app.pages.numbers import number, percent, span
from ehr.reports import FAMILIES, Report
from ehr.shareable import ShareableReport

BY_NAME = {family.name: family for family in FAMILIES}
environment = Environment(
    loader=PackageLoader("app.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    auto_reload=False,
)
environment.filters |= {"number": number, "percent": percent, "span": span, "named": named, "asked_for": asked_for}


def report_page(report: Report | ShareableReport, provenance: Mapping[str, str] | None = None) -> str:
    """One HTML document; `provenance`: where it comes from, line by line.

    Every figure on it stands in a `<data>` element whose `data-path` names its place in the JSON and whose `value` is
    the JSON's number, so that the two can be compared.
    """
    template = "report.html" if isinstance(report, Report) else "shareable.html"
    shown = {"report": report, "provenance": provenance or {}}
    drawn = {"pictures": pictures, "courses": courses, "notes": notes}
    return environment.get_template(template).render(**shown, **drawn, families=BY_NAME)
