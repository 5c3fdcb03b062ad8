"""How figures were measured, where that differs from the plain definition: a list below their table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.report_page.text import escape
from model_store.reports import Figures

Row = tuple[str, str, Figures]  # what the table calls the metric, what it predicts (or ""), its figures by column


@dataclass
class Place:
    """Where in the rows of a metric something is said."""

    labels: dict[str, None] = field(default_factory=dict)  # dictionaries keep the order
    columns: dict[str, None] = field(default_factory=dict)

    def add(self, label: str, column: str) -> None:
        self.labels[label] = self.columns[column] = None


def notes(rows: Iterable[Row], headings: Mapping[str, str]) -> str:
    """One line for each distinct note, with the metrics it belongs to; nothing if there is none."""
    said: dict[str, dict[str, Place]] = {}
    measured: dict[str, Place] = {}  # every figure that has an interval: what guessing gives needs no measuring
    for metric, label, figures in rows:
        for column in headings:
            figure = figures.get(column)
            if figure is None or figure.value is None:
                continue
            if figure.low != figure.high:
                measured.setdefault(metric, Place()).add(label, column)
            for note in (figure.note or "").split("; "):
                if note:
                    said.setdefault(note, {}).setdefault(metric, Place()).add(label, column)
    lines = []
    for note, places in said.items():
        where = "; ".join(_named(metric, place, measured.get(metric), headings) for metric, place in places.items())
        lines.append(f"<li>{escape(note[0].upper() + note[1:])}.<small>{escape(where)}</small></li>")
    return f'<h3>How it was measured</h3><ul class="notes">{"".join(lines)}</ul>' if lines else ""


def _named(metric: str, place: Place, whole: Place | None, headings: Mapping[str, str]) -> str:
    """The metric; what it predicts and the columns only where the note is not on all of them."""
    named = metric
    labels = [label for label in place.labels if label]
    if labels and (whole is None or not whole.labels.keys() <= place.labels.keys()):
        named += f": {', '.join(labels)}"
    if whole is None or not whole.columns.keys() <= place.columns.keys():
        named += f" ({', '.join(headings[column] for column in place.columns)})"
    return named
