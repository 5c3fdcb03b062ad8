"""How large a file, a function and the README may be."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import house

NAMES = [
    "house.lines",
    "house.longest_function",
    "house.longest_file",
    "house.readme_words",
    "house.places_for_a_generator",
    "house.places_for_a_metric",
    "house.condition_classes",
]


def test_functions_are_short() -> None:
    assert [each for each in house.functions() if each.lines > 60] == []


def test_files_are_short() -> None:
    assert [(path, lines) for path, lines in house.files() if lines > 300] == []
    benchmarks = {path: len(path.read_text().splitlines()) for path in (house.ROOT / "benchmarks").rglob("*.py")}
    assert [(path.name, lines) for path, lines in benchmarks.items() if lines > 300] == []


def test_the_readme_is_short() -> None:
    assert house.readme_words() <= 1_200


def test_tables_are_there() -> None:
    assert [name for name in house.TABLES if not (house.ROOT / name).exists()] == []


def test_every_generator_and_metric_is_counted() -> None:
    from worker.engine.metrics import FIDELITY

    metrics = {each.name: each.places for each in house.known("metric")}
    assert {metric.name for metric in FIDELITY} <= set(metrics)
    assert all("worker/engine/metrics/__init__.py" in metrics[metric.name] for metric in FIDELITY)
    assert not [place for name, places in metrics.items() for place in places if Path(place).stem == name]
    generators = {each.name: each.places for each in house.known("generator")}
    assert {"d3pm", "independent", "tabddpm"} <= set(generators) and all(generators.values())


def test_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["house", "--quick", "--json", str(tmp_path / "figures.json")])
    house.main()
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [row["name"] for row in figures] == NAMES and all(row["value"] > 0 for row in figures)
