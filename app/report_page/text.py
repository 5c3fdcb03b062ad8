"""Words, numbers and tables of the page."""

import html
from collections.abc import Iterable, Sequence
from typing import Any

from ehr.reports import Figure, Verdict

SYMBOLS = {"good": "\u2713", "caution": "!", "fail": "\u2715"}
WORDS = {"good": "Good", "caution": "Caution", "fail": "Fail"}
RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def escape(value: Any) -> str:
    return html.escape(str(value))


def number(value: float, digits: int = 4) -> str:
    """A figure as people read it: with the digits that count."""
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    if abs(value) >= 1000 or "e+" in text:
        return f"{value:,.0f}"
    if "e" not in text:
        return text
    factor, power = f"{value:.2e}".split("e")
    return f"{float(factor):g} \u00d7 10{str(int(power)).translate(RAISED)}"


def percent(share: float) -> str:
    return f"{number(100 * share, digits=3)} %"


def span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}\u2013{last}"


def data(path: str, value: float | None, text: str | None = None) -> str:
    """A figure that can be compared with the JSON's at `path`."""
    if value is None:
        return '<span class="soft">not shown</span>'
    return (
        f'<data data-path="{escape(path)}" value="{value!r}">{escape(number(value) if text is None else text)}</data>'
    )


def share_cell(path: str, share: float | None) -> str:
    """A table cell with a share in percent."""
    return number_cell(data(path, share, None if share is None else percent(share)))


def figure_cell(path: str, figure: Figure | None) -> str:
    """A table cell: the value, its interval below, or why there is none."""
    if figure is None:
        return "<td></td>"
    if figure.value is None or figure.low is None or figure.high is None:
        return f'<td class="number"><span class="soft">\u2013</span><small>{escape(_short(figure.absent))}</small></td>'
    shown = data(f"{path}.value", figure.value)
    if figure.low == figure.high:
        return f'<td class="number">{shown}</td>'
    ends = (("low", figure.low), ("high", figure.high))
    interval = " to ".join(data(f"{path}.{end}", value, number(value, digits=3)) for end, value in ends)
    return f'<td class="number">{shown}<small>{interval}</small></td>'


def _short(reason: str | None) -> str:
    return "not measured" if reason is None or len(reason) > 30 else reason


def level_cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return '<td><span class="soft">not judged</span></td>'
    return f'<td><span class="{verdict.level}">{SYMBOLS[verdict.level]} {WORDS[verdict.level]}</span></td>'


def verdict_box(verdict: Verdict, heading: str = "", extra: str = "") -> str:
    """What it means and what to do; the level is a word and a sign, not only a colour."""
    advice = f"<p><b>What to do:</b> {escape(verdict.advice)}</p>" if verdict.advice else ""
    level = f'<p class="level">{SYMBOLS[verdict.level]} {WORDS[verdict.level]}</p>'
    return f'<div class="verdict {verdict.level} {extra}">{heading}{level}<p>{escape(verdict.reason)}</p>{advice}</div>'


def table(caption: str, head: Sequence[tuple[str, bool]], rows: Iterable[str]) -> str:
    """`head`: column names and whether they are of numbers; `rows`: finished cells. A wide table scrolls by itself."""
    columns = "".join(f'<th scope="col"{_number_class(right)}>{escape(name)}</th>' for name, right in head)
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def folded(summary: str, content: str) -> str:
    """What few will read, behind a line to open it; paper shows it all. `content` is finished HTML."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def row_head(name: str, below: str = "", facts: str = "") -> str:
    """`facts` is finished HTML."""
    small = "".join(f"<small>{each}</small>" for each in (escape(below), facts) if each)
    return f'<th scope="row">{escape(name)}{small}</th>'


def number_cell(content: str) -> str:
    return f'<td class="number">{content}</td>'


def _number_class(right: bool) -> str:
    return ' class="number"' if right else ""
