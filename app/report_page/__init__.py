"""A report as one self-contained page: verdicts, pictures as inline SVG, tables. No script, nothing to load.

Every figure on the page stands in a `<data>` element whose `data-path` names its place in the JSON and whose `value` is
the JSON's number, so that the two can be compared.
"""

from app.report_page.sections import sections
from app.report_page.style import STYLE
from app.report_page.text import escape
from ehr.reports import Report


def report_page(report: Report) -> str:
    """One HTML document."""
    title = escape(f"Report on cohort {report.cohort_id}")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(sections(report))
        + "\n</main>\n</body>\n</html>\n"
    )
