"""The report page in a real browser: nothing fails, everyone can read it, and its figures are the JSON's."""

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.api.conftest import settings_for
from tests.api.front import Front
from tests.api.test_reports import at
from tests.browser.chromium import chromium
from tests.reporting import small_report

AXE = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
SCREENS: dict[str, dict[str, Any]] = {
    "day": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
    "night": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "light"},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module", params=[False, True], ids=["everyone", "conditioned"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """(the page's address, the JSON of the same report), from a running service."""
    folder = tmp_path_factory.mktemp("service")
    with Front(settings_for(folder, f"sqlite:///{folder / 'db.sqlite'}")) as front:
        caller = front.as_owner("local")  # what the open service shows
        cohort = caller.cohort([[[0]]])
        caller.report(small_report(request.param).model_dump(mode="json"), cohort)
        yield f"{front.url}/reports/{cohort}.html?key={caller.key}", caller.http.get(f"/reports/{cohort}").json()


def opened(browser: Browser, address: str, screen: str) -> tuple[Page, list[str]]:
    """The page as a browser with a key sees it, and everything that went wrong or was asked for beside it."""
    url, _, key = address.partition("?key=")
    # the policy of the page forbids scripts; for axe, which a test injects, the browser is told to ignore it
    context = browser.new_context(
        **SCREENS[screen], bypass_csp=True, extra_http_headers={"Authorization": f"Bearer {key}"}
    )
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
    page, wrong = opened(browser, served[0], screen)
    assert wrong == []
    page.add_script_tag(content=AXE)
    found = page.evaluate("async () => (await axe.run()).violations")
    told = [(each["id"], each["impact"], [node["target"] for node in each["nodes"]][:3]) for each in found]
    assert told == [], json.dumps(told, indent=1)
    width, window = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= window  # wide tables scroll by themselves, the page does not
    assert page.locator("svg[role=img]").count() >= 4
    assert page.locator("script").count() == 1  # axe; the page has none
    page.context.close()


def test_the_figures_are_those_of_the_json(browser: Browser, served: tuple[str, Any]) -> None:
    page, _ = opened(browser, served[0], "day")
    script = "all => all.map(each => [each.dataset.path, each.value, each.innerText])"
    figures = page.locator("data").evaluate_all(script)
    assert len(figures) > 100
    for path, value, text in figures:
        assert at(served[1], path) == float(value)
        said = float(text.replace(",", "").replace("%", ""))
        exact = float(value) * (100 if text.endswith("%") else 1)
        assert said == pytest.approx(exact, rel=0.06, abs=1e-12), path  # the text is the same number, rounded
    for family in ("fidelity", "privacy"):
        verdict = served[1][family]["verdict"]
        assert verdict is None or verdict["reason"] in page.inner_text("main")
    shown = served[1]["pictures"]["prevalence"]
    dots = page.locator("svg circle.point, svg circle.zero").count()
    rare = sum(point["rare"] for point in shown)
    assert dots == len(shown) + rare + len(served[1]["pictures"]["correlation"])
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
    swatch = "getComputedStyle(document.querySelector('.legend li'), '::before').printColorAdjust"
    assert page.evaluate(swatch) == "exact"  # browsers leave backgrounds out, and legends with them
    page.context.close()
