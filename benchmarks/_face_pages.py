"""The web application as a browser sees it: bytes, requests, time to the first page, and barriers."""

import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser

from benchmarks._harness import Figures, progress_bar, show
from tests.api.front import Front
from tests.browser.chromium import chromium
from tests.browser.library import Library, library_settings
from tests.browser.people import DESK, NIGHT, PHONE, Person

VISITS = 15
SCREENS: dict[str, dict[str, Any]] = {"phone": PHONE, "desk": DESK, "night": NIGHT}


def pages(figures: Figures, quick: bool) -> None:
    """Every page on every screen, with something of everything to show; the first page again and again."""
    logging.getLogger("runtime").setLevel(logging.ERROR)  # nobody listens at the broker's socket, and that is said
    with tempfile.TemporaryDirectory() as folder, library(Path(folder)) as shelf, chromium() as browser:
        first = _first_page(browser, shelf, 3 if quick else VISITS)
        barriers, elsewhere = _all_pages(browser, shelf, {"phone": PHONE} if quick else SCREENS)
    figures.add("page.bytes", first["bytes"], "bytes of the first page with all it loads")
    figures.add("page.requests", first["requests"], "requests of the first page")
    figures.add("page.first_ms", first["ms"], "milliseconds until the first page is loaded, median")
    figures.add("page.requests_external", elsewhere, "requests to anywhere else, all pages")
    figures.add("axe.violations", barriers, "on all pages and screens")


@contextmanager
def library(folder: Path) -> Iterator[Library]:
    with Front(library_settings(folder)) as front:
        yield Library.in_front(front)


def _first_page(browser: Browser, shelf: Library, visits: int) -> dict[str, float]:
    """Each visit with nothing kept from the one before; the first one warms the service and is not counted."""
    known = Person(browser, shelf.caller.front.url, DESK)
    known.log_in(shelf.caller.key)
    sizes: list[int] = []
    seconds: list[float] = []
    for _ in range(visits + 1):
        person = Person(browser, shelf.caller.front.url, DESK)
        person.take_session_of(known)
        sizes.clear()
        person.on_answer(sizes.append)
        start = time.perf_counter()
        person.goto("/")
        seconds.append(time.perf_counter() - start)
        person.page.wait_for_load_state("networkidle")
        person.context.close()
    known.context.close()
    return {"bytes": sum(sizes), "requests": len(sizes), "ms": 1000 * median(seconds[1:])}


def _all_pages(browser: Browser, shelf: Library, screens: dict[str, dict[str, Any]]) -> tuple[int, int]:
    """(barriers, requests elsewhere)."""
    found: list[list[str]] = []
    elsewhere: list[str] = []
    paths = shelf.pages()
    with progress_bar("pages") as told:
        for number, (name, screen) in enumerate(screens.items()):
            person = Person(browser, shelf.caller.front.url, screen)
            person.log_in(shelf.caller.key)
            for place, path in enumerate(paths):
                person.goto(path)
                person.page.wait_for_load_state("networkidle")
                found += [[name, path.split("?")[0], str(rule), str(where)] for rule, where in person.barriers()]
                told(number * len(paths) + place + 1, len(screens) * len(paths))
            elsewhere += person.elsewhere
            person.context.close()
    if found:
        show("barriers", ["screen", "page", "rule", "where"], found)
    return len(found), len(elsewhere)
