"""Pictures are drawn to scale: what a reader takes from the ticks is what the JSON says."""

from collections.abc import Iterable
from math import log10
from xml.etree import ElementTree

import pytest

from app.pages import pictures
from app.pages.codes import short_named
from app.pages.numbers import number, percent
from app.pages.pictures import Picture
from app.pages.svg import BOTTOM, HEIGHT
from tests.reporting import small_report

NAMES = {percent(10.0**power): 10.0**power for power in range(-8, 1)}
NAMES |= {number(round(step / 100, 2)): step / 100 for step in range(101)}


def drawn(found: Iterable[Picture], label: str) -> ElementTree.Element:
    """The picture whose label begins like that."""
    drawings = [ElementTree.fromstring(picture.drawing) for picture in found]
    (picture,) = (svg for svg in drawings if (svg.get("aria-label") or "").startswith(label))
    return picture


def places(picture: ElementTree.Element, axis: str) -> list[tuple[float, float]]:
    """(value, place) of the ticks, by their words."""
    texts = [text for text in picture.iter("text") if text.text in NAMES]
    if axis == "y":
        return [(NAMES[t.text or ""], float(t.get("y", "")) - 4) for t in texts if t.get("text-anchor") == "end"]
    return [(NAMES[t.text or ""], float(t.get("x", ""))) for t in texts if t.get("text-anchor") != "end"]


def read_off(ticks: list[tuple[float, float]], place: float, log: bool = False) -> float:
    """The value at a place between two ticks."""
    (a, at_a), (b, at_b) = ticks[0], ticks[-1]
    share = (place - at_a) / (at_b - at_a)
    return float(a * (b / a) ** share) if log else a + share * (b - a)


def test_a_code_lies_where_its_prevalences_are() -> None:
    report = small_report()
    picture = drawn(pictures.fidelity(report), "All codes")
    x, y = places(picture, "x"), places(picture, "y")
    circles = {circle.findtext("title"): circle for circle in picture.iter("circle")}
    points = {short_named(point.code, report): point for point in report.pictures.prevalence}
    assert "ICD10CM:E11 (Type 2 diabetes mellitus)" in points
    assert set(circles) == set(points) and any(p.real != p.synthetic for p in points.values())
    for code, point in points.items():
        circle = circles[code]
        pixel = abs(log10(x[0][0] / x[-1][0]) / (x[0][1] - x[-1][1]))  # decades
        assert log10(read_off(x, float(circle.get("cx", "")), log=True) / point.real) == pytest.approx(0, abs=pixel)
        if point.synthetic > 0:
            assert circle.get("class") == "point"
            told = read_off(y, float(circle.get("cy", "")), log=True)
            assert log10(told / point.synthetic) == pytest.approx(0, abs=pixel)
        else:  # below the axis, where no share is
            assert circle.get("class") == "zero" and HEIGHT - BOTTOM > float(circle.get("cy", "")) > y[0][1]


def test_a_bar_is_as_long_as_its_attack_succeeds() -> None:
    report = small_report()
    picture = drawn(pictures.attacks(report.privacy), "Success of each attack")
    ticks = places(picture, "x")
    roles = {"synthetic": "attack", "real": "control", "other": "baseline"}
    expected = [(kind, m.figures[role].value) for m in report.privacy.metrics.values() for kind, role in roles.items()]
    bars = list(picture.iter("rect"))
    assert len(bars) == len(expected) and len({value for _, value in expected}) > 6
    for bar, (kind, value) in zip(bars, expected, strict=True):
        assert bar.get("class") == kind and value is not None
        start, width = float(bar.get("x", "")), float(bar.get("width", ""))
        assert read_off(ticks, start) == pytest.approx(0, abs=0.003)
        assert read_off(ticks, start + width) == pytest.approx(value, abs=0.003)
