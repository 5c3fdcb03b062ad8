"""Pictures as inline SVG. Colours come from the page's style, so that they follow day, night and paper.

Nobody needs to see colours: synthetic is filled, real is hollow, and what else there is has a light filling.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup, escape

from app.pages.numbers import number, percent

WIDTH, HEIGHT = 400, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 44


@dataclass(frozen=True)
class Axis:
    """From values to places between `start` and `end`, with labelled ticks."""

    low: float
    high: float
    start: float
    end: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def at(self, value: float) -> float:
        low, high, value = (log10(each) if self.log else each for each in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)


@dataclass(frozen=True)
class Mark:
    """A value with its interval, in a colour and a filling of its own."""

    kind: str  # synthetic, real or other
    value: float
    low: float
    high: float


def scatter(
    points: Sequence[tuple[float, float, str]], label: str, x_name: str, y_name: str, *, log: bool = False
) -> Markup:
    """(x, y, name) beside the line of agreement. On log axes a y of 0 has no place: it stands below, as a ring."""
    xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
    positive = [value for value in (*xs, *ys) if value > 0]
    if log:
        low, high = 10.0 ** floor(log10(min(positive, default=0.001))), 10.0 ** ceil(log10(max(positive, default=1.0)))
        ticks = [(10.0**p, percent(10.0**p)) for p in range(round(log10(low)), round(log10(high)) + 1)]
    else:
        low, high = min([*xs, *ys, 0.0]), max([*xs, *ys, 0.1])
        ticks = _ticks(low, high)
    x_axis = Axis(low, high, LEFT, WIDTH - RIGHT, ticks, log)
    y_axis = Axis(low, high, HEIGHT - BOTTOM - (14 if log else 0), TOP, ticks, log)
    shapes = [_frame(x_axis, y_axis, x_name, y_name)]
    ideal = f"M{x_axis.at(low)} {y_axis.at(low)}L{x_axis.at(high)} {y_axis.at(high)}"
    shapes.append(f'<path class="ideal" d="{ideal}"/>')
    for x, y, name in points:
        missing = log and y <= 0
        place = HEIGHT - BOTTOM - 6 if missing else y_axis.at(y)
        kind = "zero" if missing else "point"
        shapes.append(
            f'<circle class="{kind}" cx="{x_axis.at(x)}" cy="{place}" r="3"><title>{escape(name)}</title></circle>'
        )
    return document(WIDTH, HEIGHT, label, shapes)


def columns_and_outline(
    bins: Sequence[tuple[str, float | None, float]], label: str, x_name: str, y_name: str = "share of records"
) -> Markup:
    """(name, real, synthetic): synthetic shares as columns, real ones, if there are any, as the outline that these
    should fill."""
    highest = max((max(real or 0.0, synthetic) for _, real, synthetic in bins), default=1.0) or 1.0
    step = round_step(highest)
    ticks = [(step * k, percent(step * k)) for k in range(floor(highest / step) + 1)]
    y_axis = Axis(0.0, highest, HEIGHT - BOTTOM, TOP, ticks)
    slot = (WIDTH - LEFT - RIGHT) / max(len(bins), 1)
    every = max(1, ceil(len(bins) * 34 / (WIDTH - LEFT - RIGHT)))
    x_ticks = [(i + 0.5, name) for i, (name, _, _) in enumerate(bins) if i % every == 0]
    shapes = [_frame(Axis(0, max(len(bins), 1), LEFT, WIDTH - RIGHT, x_ticks), y_axis, x_name, y_name)]
    base, outline = y_axis.at(0), f"M{LEFT} {y_axis.at(0)}"
    for i, (_, real, synthetic) in enumerate(bins):
        x, top = LEFT + slot * (i + 0.1), y_axis.at(synthetic)
        shapes.append(
            f'<rect class="synthetic" x="{x:.1f}" y="{top}" width="{slot * 0.8:.1f}" height="{base - top:.1f}"/>'
        )
        outline += f"V{y_axis.at(real or 0.0)}H{LEFT + slot * (i + 1):.1f}"
    if any(real is not None for _, real, _ in bins):
        shapes.append(_haloed(f"{outline}V{base}", "real", "halo"))
    return document(WIDTH, HEIGHT, label, shapes)


def curve(points: Sequence[tuple[float, float, float]]) -> Markup | None:
    """(how far, training loss, held-out loss) as two lines; None if there is nothing to draw."""
    if len(points) < 2:
        return None
    losses = [loss for point in points for loss in point[1:]]
    margin = 0.05 * (max(losses) - min(losses)) or 0.5
    low, high = min(losses) - margin, max(losses) + margin
    first, last = points[0][0], points[-1][0]
    x_axis = Axis(first, last, LEFT, WIDTH - RIGHT, _ticks(first, last))
    y_axis = Axis(low, high, HEIGHT - BOTTOM, TOP, _ticks(low, high))
    shapes = [_frame(x_axis, y_axis, "how far training is", "loss (lower is better)")]
    for kind, place in (("synthetic", 1), ("real", 2)):
        line = "L".join(f"{x_axis.at(point[0])} {y_axis.at(point[place])}" for point in points)
        shapes.append(f'<path class="line {kind}" d="M{line}"/>')
    return document(WIDTH, HEIGHT, "Loss on training records and on held-out records, as training went on", shapes)


def cumulative(points: Sequence[tuple[float, float | None, float]], label: str, x_name: str, y_name: str) -> Markup:
    """(x, real, synthetic): shares that grow with x, as lines from nothing on."""
    points = [(0.0, None if points[0][1] is None else 0.0, 0.0), *points]
    last = points[-1][0]
    x_axis = Axis(0.0, last, LEFT, WIDTH - RIGHT, _ticks(0.0, last))
    y_axis = Axis(0.0, 1.0, HEIGHT - BOTTOM, TOP, [(k / 5, percent(k / 5)) for k in range(6)])
    shapes = [_frame(x_axis, y_axis, x_name, y_name)]
    for kind, place in (("synthetic", 2), ("real", 1)):
        known = [(point[0], value) for point in points if (value := point[place]) is not None]
        line = "L".join(f"{x_axis.at(x)} {y_axis.at(value)}" for x, value in known)
        shapes += [f'<path class="line {kind}" d="M{line}"/>'] if known else []
    return document(WIDTH, HEIGHT, label, shapes)


def intervals(rows: Sequence[tuple[str, Sequence[Mark]]], label: str, x_name: str, low: float, high: float) -> Markup:
    """Each name with its values as dots on their intervals."""

    def draw(mark: Mark, x: Axis, y: float) -> str:
        return (
            f'<line class="{mark.kind}" x1="{x.at(mark.low)}" x2="{x.at(mark.high)}" y1="{y}" y2="{y}"/>'
            f'<circle class="{mark.kind}" cx="{x.at(mark.value)}" cy="{y}" r="4.5"/>'
        )

    return _rows(rows, label, x_name, low, high, draw)


def bars(
    rows: Sequence[tuple[str, Sequence[Mark]]], label: str, x_name: str, end: float, *, as_percent: bool = False
) -> Markup:
    """Each name with its values as bars from 0, with their intervals."""

    def draw(mark: Mark, x: Axis, y: float) -> str:
        start = x.at(0)
        whisker = ""
        if mark.high > mark.low:
            low, high = x.at(mark.low), x.at(mark.high)
            whisker = _haloed(f"M{low} {y - 3}v6M{high} {y - 3}v6M{low} {y}H{high}", "whisker", "halo thin")
        width = max(x.at(mark.value) - start, 0.5)
        return f'<rect class="{mark.kind}" x="{start}" y="{y - 4}" width="{width:.1f}" height="8"/>{whisker}'

    return _rows(rows, label, x_name, 0.0, end, draw, as_percent)


def _rows(
    rows: Sequence[tuple[str, Sequence[Mark]]],
    label: str,
    x_name: str,
    low: float,
    high: float,
    draw: Callable[[Mark, Axis, float], str],
    as_percent: bool = False,
) -> Markup:
    """A block for each name: the name, and below it a line for each mark."""
    line = 11
    heights = [20 + line * len(marks) + 6 for _, marks in rows]
    height = sum(heights) + BOTTOM
    step = round_step(high - low)
    shown = percent if as_percent else number
    ticks = [
        (step * k, shown(round(step * k, 6))) for k in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)
    ]
    x = Axis(low, high, 8, WIDTH - RIGHT, ticks)
    shapes = []
    for value, name in ticks:
        shapes.append(f'<line class="grid" x1="{x.at(value)}" x2="{x.at(value)}" y1="0" y2="{height - BOTTOM}"/>')
        anchor = "start" if value == ticks[0][0] and x.at(value) < 20 else "middle"
        shapes.append(
            f'<text x="{x.at(value)}" y="{height - BOTTOM + 16}" text-anchor="{anchor}">{escape(name)}</text>'
        )
    shapes.append(f'<text x="{(8 + WIDTH - RIGHT) / 2}" y="{height - 8}" text-anchor="middle">{escape(x_name)}</text>')
    top = 0
    for (name, marks), tall in zip(rows, heights, strict=True):
        short = name if len(name) <= 58 else f"{name[:57]}\u2026"
        shapes.append(f'<text class="name" x="8" y="{top + 14}">{escape(short)}</text>')
        shapes += [draw(mark, x, top + 24 + line * k) for k, mark in enumerate(marks)]
        top += tall
    return document(WIDTH, height, label, shapes)


def _frame(x: Axis, y: Axis, x_name: str, y_name: str) -> str:
    bottom = HEIGHT - BOTTOM
    parts = []
    for value, name in y.ticks:
        at = y.at(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{escape(name)}</text>')
    for value, name in x.ticks:
        parts.append(f'<text x="{x.at(value)}" y="{bottom + 16}" text-anchor="middle">{escape(name)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_name)}</text>')
    parts.append(
        f'<text transform="translate(12 {bottom / 2 + TOP}) rotate(-90)" text-anchor="middle">{escape(y_name)}</text>'
    )
    return "".join(parts)


def _haloed(path: str, kind: str, halo: str) -> str:
    """A line with a rim in the colour of the page, to be seen on a filled bar too."""
    return f'<path class="{halo}" d="{path}"/><path class="{kind}" d="{path}"/>'


def document(width: int, height: int, label: str, shapes: Sequence[str]) -> Markup:
    """`shapes` are finished: every text in them is escaped."""
    inner = "".join(shapes)
    return Markup(f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{inner}</svg>')


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    step = round_step(high - low)
    return [(step * k, number(round(step * k, 6))) for k in range(ceil(low / step), floor(high / step) + 1)]


def round_step(span: float) -> float:
    """A round step that divides a span into about five."""
    raw = span / 5 if span > 0 else 1.0
    power = 10.0 ** floor(log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
