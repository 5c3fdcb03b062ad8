"""A few patients over time, one below the other on one scale of years: visits as strokes, codes as dots."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from app.pages.svg import RIGHT, Axis, document, round_step

WIDTH = 820  # across the page: a timeline is long
NAMES = 310  # that is kept for what codes are called
LINE, HEAD, GAP, FOOT = 16, 22, 14, 44
MOST_LETTERS = 44
YEAR = 365.25


@dataclass(frozen=True)
class Row:
    """A patient: who it is, the days of visits, and the days of some codes."""

    name: str
    visits: Sequence[int]
    codes: Sequence[tuple[str, Sequence[int]]]


def timelines(rows: Sequence[Row], label: str) -> Markup:
    years = max((row.visits[-1] for row in rows), default=1) / YEAR or 0.1
    height = sum(HEAD + LINE * len(row.codes) + GAP for row in rows) + FOOT
    step = round_step(years)
    ticks = [(step * k, f"{step * k:g}") for k in range(int(years / step) + 1)]
    x = Axis(0.0, years, NAMES, WIDTH - RIGHT, ticks)
    bottom = height - FOOT
    shapes = [f'<line class="grid" x1="{x.at(at)}" x2="{x.at(at)}" y1="0" y2="{bottom}"/>' for at, _ in ticks]
    shapes += [
        f'<text x="{x.at(at)}" y="{bottom + 16}" text-anchor="middle">{escape(name)}</text>' for at, name in ticks
    ]
    middle = (NAMES + WIDTH - RIGHT) / 2
    shapes.append(f'<text x="{middle}" y="{height - 8}" text-anchor="middle">years since the first visit</text>')
    top = 0
    for row in rows:
        shapes.append(f'<text class="name" x="0" y="{top + 14}">{escape(_short(row.name))}</text>')
        strokes = "".join(f"M{x.at(day / YEAR)} {top + 4}v12" for day in row.visits)
        shapes.append(f'<path class="whisker" d="{strokes}"/>')
        for place, (name, days) in enumerate(row.codes):
            y = top + HEAD + LINE * place + LINE / 2
            shapes.append(f'<text x="12" y="{y + 4}">{escape(_short(name))}</text>')
            shapes += [f'<circle class="synthetic" cx="{x.at(day / YEAR)}" cy="{y}" r="3.5"/>' for day in days]
        top += HEAD + LINE * len(row.codes) + GAP
    return document(WIDTH, height, label, shapes)


def _short(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"
