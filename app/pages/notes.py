"""How figures were measured, where that differs from the plain definition, and what was not measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ehr.reports import AugmentationReport, FamilyReport, Figures

Row = tuple[str, str, Figures]  # what the table calls the metric, what it predicts (or ""), its figures by column


@dataclass
class Place:
    """Where in the rows of a metric something is said."""

    labels: dict[str, None] = field(default_factory=dict)  # dictionaries keep the order
    columns: dict[str, None] = field(default_factory=dict)

    def add(self, label: str, column: str) -> None:
        self.labels[label] = self.columns[column] = None


def of_family(family: FamilyReport, headings: Mapping[str, str]) -> dict[str, list[str]]:
    """Each distinct note on a family's figures, with the metrics it belongs to. `headings`: role -> column name."""
    rows = (
        (metric.title or metric.name, metric.label or "", figures)
        for metric in family.metrics.values()
        for figures in (metric.figures, *metric.variants.values())
    )
    return _lines(rows, headings)


def of_augmentation(results: Sequence[AugmentationReport], areas: Mapping[str, str]) -> dict[str, list[str]]:
    """The same for augmentation, whose columns are the arms. `areas`: name of a figure -> what the table calls it."""
    rows = (
        (heading, result.label, {arm: figures[name] for arm, figures in result.arms.items() if name in figures})
        for result in results
        for name, heading in areas.items()
    )
    return _lines(rows, {arm: arm for result in results for arm in result.arms})


def unmeasured_arms(results: Sequence[AugmentationReport]) -> list[str]:
    """Each arm of which there is no figure, with the reason."""
    return list(dict.fromkeys(_unmeasured(results)))


def _unmeasured(results: Sequence[AugmentationReport]) -> Iterator[str]:
    for result in results:
        for arm, figures in result.arms.items():
            reasons = [figure.absent for figure in figures.values() if figure.absent is not None]
            if len(reasons) == len(figures):
                yield f"{arm} ({reasons[0]})" if reasons else arm


def _lines(rows: Iterable[Row], headings: Mapping[str, str]) -> dict[str, list[str]]:
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
    return lines


def _line(note: str, place: Place, whole: Place, headings: Mapping[str, str]) -> str:
    """The note as a sentence, after the columns it holds for unless it holds for all that is measured."""
    if not place.columns.keys() >= whole.columns.keys() or not whole.columns:
        note = f"{', '.join(headings[column] for column in place.columns)}: {note}"
    return f"{note[0].upper()}{note[1:]}."


def _name(metric: str, place: Place, whole: Place) -> str:
    """The metric, and what it predicts unless the note holds for all that it does."""
    labels = [label for label in place.labels if label]
    return f"{metric}: {', '.join(labels)}" if labels and not place.labels.keys() >= whole.labels.keys() else metric
