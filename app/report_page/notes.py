"""How figures were measured, where that differs from the plain definition: a list below their table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.report_page.text import escape
from ehr.reports import Figures

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
    said: dict[tuple[str, str], Place] = {}  # (note, metric)
    measured: dict[str, Place] = {}  # metric -> every figure that has an interval: guessing needs no measuring
    for metric, label, figures in rows:
        for column in headings:
            figure = figures.get(column)
            if figure is None or figure.value is None:
                continue
            if figure.low != figure.high:
                measured.setdefault(metric, Place()).add(label, column)
            for note in (figure.note or "").split("; "):
                if note:
                    said.setdefault((note, metric), Place()).add(label, column)
    lines: dict[str, list[str]] = {}
    for (note, metric), place in said.items():
        whole = measured.get(metric, Place())
        lines.setdefault(_line(note, place, whole, headings), []).append(_name(metric, place, whole))
    items = "".join(
        f"<li>{escape(line)}<small>{escape('; '.join(names))}</small></li>" for line, names in lines.items()
    )
    return f'<h3>How it was measured</h3><ul class="notes">{items}</ul>' if items else ""


def _line(note: str, place: Place, whole: Place, headings: Mapping[str, str]) -> str:
    """The note as a sentence, after the columns it holds for unless it holds for all that is measured."""
    if not place.columns.keys() >= whole.columns.keys() or not whole.columns:
        note = f"{', '.join(headings[column] for column in place.columns)}: {note}"
    return f"{note[0].upper()}{note[1:]}."


def _name(metric: str, place: Place, whole: Place) -> str:
    """The metric, and what it predicts unless the note holds for all that it does."""
    labels = [label for label in place.labels if label]
    return f"{metric}: {', '.join(labels)}" if labels and not place.labels.keys() >= whole.labels.keys() else metric
