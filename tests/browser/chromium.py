"""A real Chromium, wherever the machine has one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

AXE = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")  # looks for barriers
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# nothing but the page under test may be asked for, and root may run it
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # as on a machine without a network
]  # fmt: skip


def executable() -> str | None:
    """$CHROMIUM, or what is on the path; None if there is none (then Playwright's own, if it was installed)."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser with an empty profile; skips where there is none, unless real services are required."""
    with sync_playwright() as playwright:
        path = executable() or playwright.chromium.executable_path
        if not Path(path).exists():
            reason = "there is no Chromium: install one (Debian: chromium) or name it in CHROMIUM"
            if os.environ.get("REQUIRE_REAL_SERVICES") == "1":
                pytest.fail(reason)
            pytest.skip(reason)
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, headless=True)
        try:
            yield browser
        finally:
            browser.close()
