"""Codes as people read them: with what they are called beside them; filters of the templates."""

from collections.abc import Iterator

from ehr.conditions import AskedCondition
from ehr.history_conditions import AskedHistoryCondition
from ehr.reports import AskedOverTime, NamedCodes, Report
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
    asked, history = report.condition, report.history
    if history is not None:
        return "; ".join(over_time(history.condition if isinstance(history, AskedOverTime) else history, report))
    if asked is None:
        return ""
    groups = [" or ".join(map(report.named, group)) for group in asked.any_of]
    return "; ".join([*map(report.named, asked.all_of), *groups, *(f"not {report.named(c)}" for c in asked.none_of)])


def over_time(asked: AskedHistoryCondition, report: NamedCodes) -> Iterator[str]:
    """What patients over time must be, part by part."""
    yield from (f"ever {report.named(code)}" for code in asked.ever)
    yield from (f"never {report.named(code)}" for code in asked.never)
    yield from (f"{report.named(each.first)} before {report.named(each.then)}" for each in asked.before)
    for each in asked.at_visit:
        yield f"visit {each.visit}: {_said(each, report)}"
    yield from _between(asked.fewest_visits, asked.most_visits, 1, "visits")
    yield from _between(asked.shortest_days, asked.longest_days, 0, "days from the first visit to the last")
    if not asked.start.is_empty:
        yield f"at the start: {_said(asked.start, report)}"
    if asked.prompt:
        yield f"beginning with {len(asked.prompt)} given visit{'s' if len(asked.prompt) > 1 else ''}"


def _between(least: int, most: int | None, usual: int, what: str) -> Iterator[str]:
    bounds = [f"at least {least}"] if least > usual else []
    bounds += [] if most is None else [f"at most {most}"]
    if bounds:
        yield f"{' and '.join(bounds)} {what}"


def _said(asked: AskedCondition, report: NamedCodes) -> str:
    groups = [" or ".join(map(report.named, group)) for group in asked.any_of]
    return ", ".join([*map(report.named, asked.all_of), *groups, *(f"not {report.named(c)}" for c in asked.none_of)])
