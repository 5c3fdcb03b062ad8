"""A report as a page: every table of its JSON, readable without a script or a second file."""

import html
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733 }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2rem; border-bottom: 1px solid #d5dde5 }
h3 { font-size: 1rem; margin-bottom: .25rem }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #e6ebf0; text-align: left; vertical-align: top }
th { font-weight: 600; background: #f6f8fa }
@media (prefers-color-scheme: dark) { body { background: #12181f; color: #dbe3ea } th { background: #1b242d } }
"""
DEEPEST = 6


def report_page(job_id: str, body: dict[str, Any]) -> str:
    """One self-contained HTML page."""
    parts = [f"<h1>Report on cohort {_text(body.get('cohort', job_id))}</h1>"]
    plain = {name: value for name, value in body.items() if not _is_nested(value)}
    parts.append(_pairs(plain))
    for name, value in body.items():
        if _is_nested(value):
            parts += [f"<h2>{_label(name)}</h2>", _value(value, 0)]
    content = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Report {_text(job_id)}</title><style>{STYLE}</style></head><body>\n{content}\n</body></html>\n"
    )


def _value(value: Any, depth: int) -> str:
    if depth > DEEPEST or not _is_nested(value):
        return _text(value)
    if isinstance(value, dict):
        rows = list(value.values())
        if rows and all(isinstance(row, dict) for row in rows):
            return _table([{"": name} | row for name, row in value.items()], depth)
        return _pairs(value, depth)
    if all(isinstance(item, dict) for item in value):
        return _table(value, depth)
    return ", ".join(_value(item, depth + 1) for item in value)


def _pairs(pairs: dict[str, Any], depth: int = 0) -> str:
    rows = (f"<tr><th>{_label(k)}</th><td>{_value(v, depth + 1)}</td></tr>" for k, v in pairs.items())
    return f"<table>{''.join(rows)}</table>"


def _table(rows: list[dict[str, Any]], depth: int) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{_label(name)}</th>" for name in columns)
    lines = ("".join(f"<td>{_value(row.get(name), depth + 1)}</td>" for name in columns) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _label(name: Any) -> str:
    return _text(str(name).replace("_", " "))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))
