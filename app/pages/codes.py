"""Codes as people read them: with what they are called beside them; filters of the templates."""

from ehr.reports import NamedCodes, Report
from ehr.shareable import ShareableReport

SHORT = 60  # characters of a name


def named(text: str, report: NamedCodes) -> str:
    """A code, or several with commas between them, each with its name in brackets; other texts as they are."""
    if text in report.names:
        return report.named(text)
    return ", ".join(report.named(part) for part in text.split(", "))


def short_named(code: str, report: Report) -> str:
    """The same for one of thousands of marks: they must fit on a page."""
    name = report.names.get(code, "")
    return f"{code} ({name[: SHORT - 1]}\u2026)" if len(name) > SHORT else report.named(code)


def asked_for(report: Report | ShareableReport) -> str:
    """The condition in one line."""
    asked = report.condition
    if asked is None:
        return ""
    groups = [" or ".join(map(report.named, group)) for group in asked.any_of]
    return "; ".join([*map(report.named, asked.all_of), *groups, *(f"not {report.named(c)}" for c in asked.none_of)])
