"""One browser for all tests of pages, and one library for those that need things to look at."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.api.front import Front
from tests.browser.chromium import chromium
from tests.browser.library import Library, library_settings


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    folder = tmp_path_factory.mktemp("library")
    with Front(library_settings(folder)) as front:
        yield Library.in_front(front)
