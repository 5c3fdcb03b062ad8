"""Someone at the web application: a page in a browser, what went wrong on it, and what was asked for elsewhere."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, expect

from tests.browser.chromium import AXE

TIMEOUT = 120  # seconds, of a busy machine
expect.set_options(timeout=1000 * TIMEOUT)
PHONE: dict[str, Any] = {"viewport": {"width": 400, "height": 800}, "color_scheme": "light"}
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"}
SMALL: dict[str, Any] = {
    "viewport": {"width": 1024, "height": 680},
    "device_scale_factor": 0.8,
    "color_scheme": "light",
}
NIGHT: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"}
BARRIERS = """async only => (await axe.run(only.length ? {runOnly: only} : {})).violations.map(
    each => [each.id, each.nodes.slice(0, 3).map(node => node.target.join(" "))])"""


@dataclass
class Person:
    """`url` of the service; nothing but that is asked for, or `elsewhere` says what."""

    browser: Browser
    url: str
    screen: dict[str, Any]
    pictures: Path | None = None
    wrong: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    clicks: int = 0

    def __post_init__(self) -> None:
        self.context: BrowserContext = self.browser.new_context(**self.screen, accept_downloads=True)
        self.context.add_init_script(AXE)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(1000 * TIMEOUT)
        self.page.on(
            "console", lambda told: self.wrong.append(told.text) if told.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._asked)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.elsewhere.append(request.url)

    def goto(self, path: str) -> Page:
        self.page.goto(self.url + path)
        return self.page

    def log_in(self, key: str) -> None:
        self.goto("/login")
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(f"{self.url}/")

    def take_session_of(self, other: "Person") -> None:
        """Logged in, with nothing kept of what the other has loaded."""
        cookies: list[Any] = self.context.cookies() + other.context.cookies()
        self.context.add_cookies(cookies)

    def on_answer(self, tell: Callable[[int], None]) -> None:
        """Tell how many bytes each answer has, with its head."""

        def answered(request: Request) -> None:
            sizes = request.sizes()
            tell(sizes["responseBodySize"] + sizes["responseHeadersSize"])

        self.page.on("requestfinished", answered)

    def link(self, name: str) -> Locator:
        return self.page.get_by_role("main").get_by_role("link", name=name, exact=True).first

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("main").get_by_role("button", name=name, exact=True)

    def click(self, what: Locator) -> None:
        what.click()
        self.clicks += 1

    def tab_to(self, what: Locator) -> None:
        """By the keyboard alone."""
        what.wait_for()
        for _ in range(80):
            if what.evaluate("each => each === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"the keyboard does not reach {what}")

    def press(self, what: Locator, key: str = "Enter") -> None:
        self.tab_to(what)
        self.page.keyboard.press(key)

    def barriers(self, only: Sequence[str] = ()) -> list[Any]:
        """What axe finds on the page as it is; by some of its rules, or all."""
        return list(self.page.evaluate(BARRIERS, list(only)))

    def is_too_wide(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def picture(self, name: str) -> None:
        """For docs/, if $PICTURES names a folder."""
        folder = self.pictures or (Path(os.environ["PICTURES"]) if "PICTURES" in os.environ else None)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.page.evaluate("window.scrollTo(0, 0)")
            self.page.screenshot(path=folder / f"{name}.png")
