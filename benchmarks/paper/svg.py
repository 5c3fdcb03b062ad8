"""Pictures of the tables as SVG files that stand alone: they bring their colours and follow day and night."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from app.pages.numbers import number
from app.pages.svg import Axis, Mark

STYLE = """
svg { --ink: #16212c; --soft: #51606e; --grid: #e3e8ed; --back: #ffffff;
  --c0: #0b6bcb; --c1: #b35309; --c2: #6b7785; --c3: #12703c }
@media (prefers-color-scheme: dark) { svg { --ink: #e4eaf0; --soft: #a3b1be; --grid: #28333e; --back: #11181f;
  --c0: #6cb4ff; --c1: #f2a65a; --c2: #8b98a5; --c3: #6fd398 } }
.back { fill: var(--back) } text { fill: var(--soft); font: 12px system-ui, sans-serif }
.name, .title { fill: var(--ink) } .title { font-weight: 600 }
.grid { stroke: var(--grid) } .axis { stroke: var(--soft); fill: none }
.floor { stroke: var(--c1); stroke-width: 2; stroke-dasharray: 5 4 } text.floor { stroke: none; fill: var(--c1) }
circle.ring { fill: var(--back); stroke-width: 2 }
""" + "".join(
    f".k{k} {{ stroke: var(--c{k}); fill: var(--c{k}) }} path.k{k} {{ fill: none; stroke-width: 2 }} "
    f"path.band.k{k} {{ stroke: none; fill: var(--c{k}); fill-opacity: .15 }} text.k{k} {{ stroke: none }}\n"
    for k in range(4)
)
WIDTH, ROW, TOP, BOTTOM, NAMES, RIGHT = 560, 22, 34, 40, 170, 16
PANEL_WIDTH, PANEL_HEIGHT, PANEL_LEFT, LEGEND, LEGEND_WIDTH = 300, 230, 48, 40, 460


@dataclass(frozen=True)
class Curve:
    """One line of a panel: its colour, and x with the value and interval there."""

    name: str
    colour: int
    points: Sequence[tuple[float, Mark]]


def dot_plot(
    title: str, rows: Sequence[tuple[str, Mark, bool]], line: float | None, line_name: str, log: bool = False
) -> str:
    """(name, value with interval, whether it stands out), and a value to compare with as a line.

    On a logarithmic axis a value of 0 or less has no place: it stands at the left end, as a ring.
    """
    bottom = TOP + ROW * len(rows)
    values = [end for _, mark, _ in rows for end in (mark.low, mark.high)] + ([] if line is None else [line])
    axis = (_log_axis if log else _axis)(values, NAMES, WIDTH - RIGHT)
    shapes = [f'<text class="title" x="8" y="18">{escape(title)}</text>']
    legend = [] if line is None else [f"dashed: {line_name}" + (" (0 or less)" if log and line <= 0 else "")]
    if log and any(mark.value <= 0 for _, mark, _ in rows):
        legend.append("ring: 0 or less")
    if legend:
        shapes.append(f'<text class="floor" x="8" y="{bottom + 34}">{escape("; ".join(legend))}</text>')
    for value, name in axis.ticks:
        x = axis.at(value)
        shapes.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>')
        shapes.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{escape(name)}</text>')
    if line is not None:
        x = _at(axis, line)
        shapes.append(f'<line class="floor" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>')
    for position, (name, mark, ours) in enumerate(rows):
        y = TOP + ROW * (position + 0.5)
        shapes.append(f'<text class="name" x="8" y="{y + 4}">{escape(name)}</text>')
        shapes.append(_dot(y, 0 if ours else 2, mark, axis))
    return _document(WIDTH, bottom + BOTTOM, title, shapes)


def panels(title: str, parts: Sequence[tuple[str, Sequence[Curve]]], x_name: str, across: int = 3) -> str:
    """Small charts side by side, each with its own scale, with one legend for all."""
    down = ceil(len(parts) / across)
    wide, high = max(PANEL_WIDTH * min(across, len(parts)), LEGEND_WIDTH), TOP + PANEL_HEIGHT * down + LEGEND
    shapes = [f'<text class="title" x="8" y="18">{escape(title)}</text>']
    for position, (name, curves) in enumerate(parts):
        x, y = PANEL_WIDTH * (position % across), TOP + PANEL_HEIGHT * (position // across)
        shapes.append(f'<g transform="translate({x} {y})">{_panel(name, curves, x_name)}</g>')
    names = {curve.name: curve.colour for _, curves in parts for curve in curves}
    x = 8
    for name, colour in names.items():
        shapes.append(f'<circle class="k{colour}" cx="{x + 5}" cy="{high - 18}" r="5"/>')
        shapes.append(f'<text class="name" x="{x + 15}" y="{high - 14}">{escape(name)}</text>')
        x += 45 + 7 * len(name)
    return _document(wide, high, title, shapes)


def _panel(name: str, curves: Sequence[Curve], x_name: str) -> str:
    bottom, right = PANEL_HEIGHT - 44, PANEL_WIDTH - 16
    xs = sorted({x for curve in curves for x, _ in curve.points})
    x_axis = Axis(xs[0], xs[-1], PANEL_LEFT, right, [(x, f"{x / 1000:g}k" if x else "0") for x in xs])
    y_axis = _axis([e for curve in curves for _, mark in curve.points for e in (mark.low, mark.high)], bottom, 20)
    shapes = [f'<text class="name" x="{PANEL_LEFT}" y="10">{escape(name)}</text>']
    for value, text in y_axis.ticks:
        y = y_axis.at(value)
        shapes.append(f'<line class="grid" x1="{PANEL_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        shapes.append(f'<text x="{PANEL_LEFT - 6}" y="{y + 4}" text-anchor="end">{escape(text)}</text>')
    for value, text in x_axis.ticks:
        shapes.append(f'<text x="{x_axis.at(value)}" y="{bottom + 16}" text-anchor="middle">{text}</text>')
    middle = (PANEL_LEFT + right) / 2
    shapes.append(f'<text x="{middle}" y="{bottom + 34}" text-anchor="middle">{escape(x_name)}</text>')
    for curve in curves:
        there = [(x_axis.at(x), mark) for x, mark in curve.points]
        upper = [f"{x} {y_axis.at(mark.high)}" for x, mark in there]
        lower = [f"{x} {y_axis.at(mark.low)}" for x, mark in reversed(there)]
        shapes.append(f'<path class="band k{curve.colour}" d="M{"L".join(upper + lower)}Z"/>')
        line = "L".join(f"{x} {y_axis.at(mark.value)}" for x, mark in there)
        shapes.append(f'<path class="k{curve.colour}" d="M{line}"/>')
        shapes += [f'<circle class="k{curve.colour}" cx="{x}" cy="{y_axis.at(m.value)}" r="3"/>' for x, m in there]
    return "".join(shapes)


def _dot(y: float, colour: int, mark: Mark, axis: Axis) -> str:
    ends = f'x1="{_at(axis, mark.low)}" x2="{_at(axis, mark.high)}" y1="{y}" y2="{y}"'
    shown = f"{mark.value:.4g} ({mark.low:.4g} to {mark.high:.4g})"
    kind = f"k{colour} ring" if axis.log and mark.value <= 0 else f"k{colour}"
    dot = f'<circle class="{kind}" cx="{_at(axis, mark.value)}" cy="{y}" r="4.5"><title>{shown}</title></circle>'
    return f'<line class="k{colour}" {ends} stroke-width="2"/>{dot}'


def _at(axis: Axis, value: float) -> float:
    return axis.at(max(value, axis.low) if axis.log else value)


def _axis(values: Sequence[float], start: float, end: float) -> Axis:
    """From a round value below all to one above all."""
    low, high = min(values), max(values)
    raw = (high - low) / 4 if high > low else max(abs(high), 1.0) / 4
    power = 10.0 ** floor(log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    first, last = floor(low / step), ceil(high / step)
    ticks = [(step * k, number(round(step * k, 9))) for k in range(first, last + 1)]
    return Axis(step * first, step * max(last, first + 1), start, end, ticks)


def _log_axis(values: Sequence[float], start: float, end: float) -> Axis:
    """From a power of ten below all that is positive to one above all."""
    positive = [value for value in values if value > 0] or [1.0]
    first, last = floor(log10(min(positive))), ceil(log10(max(positive)))
    powers = [10.0**power for power in range(first, max(last, first + 1) + 1)]
    ticks = [(power, number(power).removeprefix("1 \u00d7 ")) for power in powers]
    return Axis(powers[0], powers[-1], start, end, ticks, log=True)


def _document(width: int, height: int, label: str, shapes: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(label)}"><style>{STYLE}</style>'
        f'<rect class="back" width="{width}" height="{height}"/>{"".join(shapes)}</svg>\n'
    )
