"""Reports as pages: self-contained documents from the templates in this package. No script, nothing to load."""

from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.pages import courses, notes, pictures
from app.pages.codes import asked_for, named
from app.pages.numbers import number, percent, span
from ehr.reports import FAMILIES, Report
from ehr.shareable import ShareableReport

SAMPLING_TEXTS = {
    "dealt": "dealt: rare codes and sizes are given out so that they are as common as the model says, with less chance"
    " than in a sample of real records. Figures on rare codes can therefore beat those of real records; that is no"
    " merit of the single record.",
    "independent": "independent: every record was drawn by itself, and numbers vary as in a sample of real records.",
}
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
environment.globals["sampling_texts"] = SAMPLING_TEXTS
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
