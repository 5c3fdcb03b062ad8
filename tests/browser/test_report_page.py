"""The report page in a real browser: nothing fails, everyone can read it, and its figures are the JSON's."""

import json
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.api.conftest import settings_for
from tests.api.front import Front
from tests.api.test_reports import at
from tests.browser.chromium import AXE
from tests.reporting import small_report

SCREENS: dict[str, dict[str, Any]] = {
    "day": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
    "night": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "light"},
}
PLAIN = str.maketrans("\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "-0123456789")


@pytest.fixture(scope="module", params=[False, True], ids=["everyone", "conditioned"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """(the page's address, the JSON of the same report), from a running service."""
    folder = tmp_path_factory.mktemp("service")
    with Front(settings_for(folder, f"sqlite:///{folder / 'db.sqlite'}")) as front:
        caller = front.as_owner("local")  # what the open service shows
        cohort = caller.cohort([[[0]]])
        caller.report(small_report(request.param).model_dump(mode="json"), cohort)
        yield f"{front.url}/reports/{cohort}.html?key={caller.key}", caller.http.get(f"/reports/{cohort}").json()


def opened(browser: Browser, address: str, screen: str, script: str = "") -> tuple[Page, list[str]]:
    """The page as a browser with a key sees it, and everything that went wrong or was asked for beside it.

    `script` is the browser's own, not the page's: the page's policy, which forbids scripts, stays in force.
    """
    url, _, key = address.partition("?key=")
    context = browser.new_context(**SCREENS[screen], extra_http_headers={"Authorization": f"Bearer {key}"})
    context.add_init_script(script)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if asked.url != url else None)
    page.goto(url)
    return page, wrong


@pytest.mark.parametrize(("served", "screen"), [(False, "day"), (True, "night"), (True, "phone")], indirect=["served"])
def test_the_page_opens_without_error_and_everyone_can_read_it(
    browser: Browser, served: tuple[str, Any], screen: str
) -> None:
    page, wrong = opened(browser, served[0], screen, AXE)
    assert wrong == []
    page.evaluate(
        "document.querySelectorAll('details').forEach(each => each.open = true)"
    )  # what is closed is not seen
    found = page.evaluate("async () => (await axe.run()).violations")
    told = [(each["id"], each["impact"], [node["target"] for node in each["nodes"]][:3]) for each in found]
    assert told == [], json.dumps(told, indent=1)
    width, window = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= window  # wide tables scroll by themselves, the page does not
    assert page.locator("svg[role=img]").count() >= 4
    assert page.locator("script").count() == 0
    page.context.close()


@pytest.mark.parametrize(("served", "screen"), [(False, "night"), (True, "phone")], indirect=["served"])
def test_the_page_that_may_be_passed_on_opens_and_everyone_can_read_it(
    browser: Browser, served: tuple[str, Any], screen: str
) -> None:
    address = served[0].replace(".html?key=", ".html?reader=shareable?key=")
    page, wrong = opened(browser, address, screen, AXE)
    assert wrong == [] and "A key with the scope 'data' sees it." in page.inner_text("main")
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("async () => (await axe.run()).violations.map(each => each.id)") == []
    width, window = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= window and page.locator("svg[role=img]").count() == 1 and page.locator("script").count() == 0
    page.context.close()


def test_the_policy_of_the_page_is_in_force(browser: Browser, served: tuple[str, Any]) -> None:
    """Else it would say nothing that the page opens without error."""
    page, wrong = opened(browser, served[0], "day")
    with page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'var ran = 1'}))")
    assert wrong != [] and page.evaluate("typeof ran") == "undefined"
    page.context.close()


def rounded(path: str, value: float, text: str) -> float:
    """The value with the digits that the page gives."""
    if text.endswith("%"):
        return float(f"{100 * value:.3g}")
    if abs(value) >= 1000:
        return round(value)
    digits = 3 if path.endswith((".low", ".high")) or "\u00d7" in text else 4
    return float(f"{value:.{digits}g}")


def said(text: str) -> float:
    """The number that a reader sees."""
    factor, _, power = text.removesuffix("%").replace(",", "").partition("\u00d7 10")
    return float(f"{factor.strip()}e{power.strip().translate(PLAIN) or 0}")


def test_the_figures_are_those_of_the_json(browser: Browser, served: tuple[str, Any]) -> None:
    page, _ = opened(browser, served[0], "day")
    script = "all => all.map(each => [each.dataset.path, each.value, each.textContent])"
    figures = page.locator("data").evaluate_all(script)
    assert len(figures) > 100
    for path, value, text in figures:
        assert at(served[1], path) == float(value)
        assert said(text) == rounded(path, float(value), text), path
    for family in ("fidelity", "privacy"):
        verdict = served[1][family]["verdict"]
        assert verdict is None or verdict["reason"] in page.inner_text("main")
    shown = served[1]["pictures"]
    drawn = [(f"sizes.{i}", each, ("real", "synthetic")) for i, each in enumerate(shown["sizes"])]
    drawn += [(f"guided.{i}", each, ("real", "unconditional", "guided")) for i, each in enumerate(shown["guided"])]
    below = {f"pictures.{place}.{name}" for place, each, names in drawn for name in names if each[name] is not None}
    below |= {f"augmentation.{i}.real_records" for i in range(len(served[1]["augmentation"]))}
    assert below and below <= {path for path, _, _ in figures}  # tables below the pictures
    dots = page.locator("svg circle.point, svg circle.zero").count()
    rare = sum(point["rare"] for point in shown["prevalence"])
    assert dots == len(shown["prevalence"]) + rare + len(shown["correlation"])
    page.context.close()


def notes_in(tree: Any) -> set[str]:
    """Every remark of the JSON on how something was measured."""
    if isinstance(tree, list):
        return set().union(*map(notes_in, tree))
    if not isinstance(tree, dict):
        return set()
    own = set(tree["note"].split("; ")) if tree.get("note") else set()
    return own.union(*map(notes_in, tree.values()))


def test_the_page_says_how_figures_were_measured(browser: Browser, served: tuple[str, Any]) -> None:
    page, _ = opened(browser, served[0], "day")
    lines = [line.lower() for line in page.locator(".notes li").all_inner_texts()]
    notes = notes_in(served[1])
    assert any("random" in note for note in notes)
    for note in notes:
        assert any(f"{note.lower()}.\n" in line for line in lines), note
    assert "Not measured: real + real (the training set is too small" in page.inner_text("main")
    page.context.close()


def luminance(colour: str) -> float:
    """Of `rgb(r, g, b)`, as WCAG defines it."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))


@pytest.mark.parametrize("screen", ["day", "night", "paper"])
def test_the_marks_differ_without_colours(browser: Browser, served: tuple[str, Any], screen: str) -> None:
    page, _ = opened(browser, served[0], "day" if screen == "paper" else screen)
    page.emulate_media(media="print" if screen == "paper" else "screen")
    kinds = ("synthetic", "real", "other")
    fills = [page.evaluate(f"getComputedStyle(document.querySelector('svg rect.{kind}')).fill") for kind in kinds]
    swatches = [
        page.evaluate(f"getComputedStyle(document.querySelector('.legend .{kind}'), '::before').backgroundColor")
        for kind in kinds
    ]
    assert swatches == fills
    for a, b in combinations(map(luminance, fills), 2):
        assert (max(a, b) + 0.05) / (min(a, b) + 0.05) > 1.5
    page.context.close()


def test_it_prints(browser: Browser, served: tuple[str, Any]) -> None:
    page, _ = opened(browser, served[0], "night")
    page.emulate_media(media="print")
    ink, back = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (ink, back) == ("rgb(0, 0, 0)", "rgb(255, 255, 255)")  # paper is white at night too
    assert len(page.pdf(format="A4")) > 20_000
    page.set_viewport_size({"width": 718, "height": 1047})  # what margins of a centimetre leave of A4
    assert page.evaluate("document.documentElement.scrollWidth") <= 718  # paper does not scroll: all columns are on it
    assert page.locator("details table").first.bounding_box() is not None  # nor can it be opened: all is on it
    assert page.evaluate("document.querySelector('details').getBoundingClientRect().height") > 100
    swatch = "getComputedStyle(document.querySelector('.legend li'), '::before').printColorAdjust"
    assert page.evaluate(swatch) == "exact"  # browsers leave backgrounds out, and legends with them
    page.context.close()
