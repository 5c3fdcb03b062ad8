"""The web application in a real browser: from upload to download by mouse and by keyboard, for two users, and every
page without barriers, on a phone and at night. Nothing is loaded from elsewhere."""

import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.api.front import Front
from tests.browser.library import Library
from tests.browser.people import DESK, NIGHT, PHONE, SMALL, Person
from tests.service.stand import Stand, long_csv

FIRST_PAGE_BYTES, FIRST_PAGE_REQUESTS, FIRST_PAGE_SECONDS = 200_000, 4, 0.3


@pytest.mark.parametrize("screen", [PHONE, NIGHT], ids=["phone", "night"])
def test_no_page_has_barriers(browser: Browser, library: Library, screen: dict[str, Any]) -> None:
    caller = library.caller
    person = Person(browser, caller.front.url, screen)
    assert person.goto("/").url.endswith("/login?next=/")
    assert person.barriers() == []
    person.log_in(caller.key)
    for path in library.pages():
        person.goto(path)
        if "missing" in path:
            assert "404 (Not Found)" in person.wrong.pop()
        if "/app/cohorts/new" in path:
            person.page.locator("#estimate .big").wait_for()
        if path == "/docs":
            person.page.evaluate("document.querySelectorAll('#probe_model, #train_model').forEach(e => e.open = true)")
        assert person.barriers(only=("color-contrast",) if screen is NIGHT else ()) == [], path
        assert not person.is_too_wide(), path
    assert person.wrong == [] and person.elsewhere == []
    person.context.close()


def test_the_first_page_is_small_and_needs_no_network(browser: Browser, library: Library) -> None:
    caller = library.caller
    person = Person(browser, caller.front.url, DESK)
    person.log_in(caller.key)
    fresh = Person(browser, caller.front.url, DESK)
    fresh.take_session_of(person)
    sizes: list[int] = []
    fresh.on_answer(sizes.append)
    start = time.process_time()  # of the service, which runs in this process: on a busy machine no clock tells
    fresh.goto("/")
    seconds = time.process_time() - start
    fresh.page.wait_for_load_state("networkidle")
    assert 0 < sum(sizes) < FIRST_PAGE_BYTES and len(sizes) <= FIRST_PAGE_REQUESTS and fresh.elsewhere == []
    assert seconds < FIRST_PAGE_SECONDS
    for each in (person, fresh):
        each.context.close()


def test_codes_are_picked_by_name_and_estimates_follow(browser: Browser, library: Library) -> None:
    caller = library.caller
    person = Person(browser, caller.front.url, DESK)
    person.log_in(caller.key)
    page = person.goto(f"/app/cohorts/new?model={library.ids['model']}")
    expect(page.locator("#estimate .big")).to_have_text("100 %")
    field = page.get_by_role("combobox", name="Every record has all of")
    field.press_sequentially("diabets")  # with a typo
    page.get_by_role("option", name="Type 2 diabetes mellitus").wait_for()
    page.keyboard.press("ArrowDown")
    assert person.barriers() == []
    page.keyboard.press("Enter")
    expect(page.locator("#estimate .big")).to_have_text("50 %")
    page.get_by_role("combobox", name="A share of records has").fill("ICD10CM:E84")
    page.keyboard.press("Enter")
    page.get_by_label("Share with ICD10CM:E84 in per cent").fill("10")
    expect(page.locator("#estimate")).to_contain_text("you ask for 10 %")
    person.button("Preview 20 records").click()
    rows = page.locator("#preview tbody tr")
    expect(rows).to_have_count(20)
    assert all("ICD10CM:E11" in row for row in rows.all_inner_texts())
    assert sum("ICD10CM:E84" in row for row in rows.all_inner_texts()) == 2
    assert person.barriers() == []
    page.get_by_role("button", name="Remove ICD10CM:E84").click()
    for name, code in (("and at least one of", "ICD9DX:25001"), ("and at least one of (group 2)", "ICD10CM:E84")):
        if "group 2" in name:
            person.button("Another group of which one is enough").click()
        page.get_by_role("combobox", name=name, exact=True).fill(code)
        page.keyboard.press("Enter")
    expect(page.locator("#estimate .big")).to_have_text("0 %")  # nobody has both
    assert person.barriers() == []
    field.fill("ICD10CM:E99")
    page.keyboard.press("Enter")
    expect(page.locator("#estimate")).to_contain_text("unknown code 'ICD10CM:E99'")
    assert person.wrong == [] and person.elsewhere == []
    person.context.close()


def test_files_can_be_dropped(browser: Browser, library: Library) -> None:
    person = Person(browser, library.caller.front.url, DESK)
    person.log_in(library.caller.key)
    page = person.goto("/app/data")
    page.evaluate(
        """() => {
            const carried = new DataTransfer();
            carried.items.add(new File(["record_id,code\\n1,E11\\n"], "dropped.csv"));
            const drop = document.getElementById("drop");
            drop.dispatchEvent(new DragEvent("drop", {dataTransfer: carried, bubbles: true, cancelable: true}));
        }"""
    )
    expect(page.locator("#chosen")).to_contain_text("dropped.csv")
    person.button("Upload").click()
    page.wait_for_url("**/app/jobs/job_*")
    expect(page.get_by_role("main")).to_contain_text("Reading data: dropped.csv")
    page.on("dialog", lambda dialog: dialog.accept())
    person.button("Cancel").click()
    expect(page.locator(".state")).to_contain_text("cancelled")
    assert person.wrong == [] and person.elsewhere == []
    person.context.close()


def test_a_bundle_goes_out_and_is_verified_when_it_comes_in(browser: Browser, library: Library) -> None:
    """The library's models were never trained, which an import finds."""
    person = Person(browser, library.caller.front.url, DESK)
    person.log_in(library.caller.key)
    page = person.goto(f"/app/models/{library.ids['model']}")
    with page.expect_download() as download:
        person.link("Export the bundle").click()
    person.goto("/app/models")
    page.locator("#file").set_input_files(download.value.path())
    person.button("Import").click()
    expect(page.locator("#said")).to_contain_text("unknown generator")
    assert "422" in person.wrong.pop() and person.wrong == [] and person.elsewhere == []
    person.context.close()


def test_an_example_of_the_docs_runs(browser: Browser, library: Library) -> None:
    caller = library.caller
    person = Person(browser, caller.front.url, DESK)
    person.log_in(caller.key)
    page = person.goto("/docs")
    page.locator("#get_dataset summary").click()
    page.locator("#get_dataset").get_by_role("button", name="Send").click()
    expect(page.locator("#get_dataset .answer")).to_contain_text(library.ids["dataset"])
    assert person.wrong == [] and person.elsewhere == []
    person.context.close()


def test_the_whole_way(browser: Browser, sqlite_stand: Stand, tmp_path: Path) -> None:
    """A custodian by mouse, another by keyboard, and an analyst who sees less."""
    table = tmp_path / "ward.csv"
    table.write_bytes(long_csv(900, n_codes=20))
    with Front(sqlite_stand.settings) as front:
        custodian = front.key("ward", "data", "train", "generate", "read")
        analyst = front.key("ward", "generate", "read")
        _by_mouse(Person(browser, front.url, SMALL), custodian, table)
        _by_keyboard(Person(browser, front.url, DESK), custodian, table)
        _as_analyst(Person(browser, front.url, PHONE), analyst)


def _by_mouse(person: Person, key: str, table: Path) -> None:
    """In at most twelve clicks, from the first page to the records."""
    person.log_in(key)
    page = person.page
    person.picture("1-start")
    person.click(person.link("Upload data"))
    with page.expect_file_chooser() as chooser:
        person.click(page.get_by_text("Choose files"))
    chooser.value.set_files(table)
    expect(page.locator("#chosen")).to_contain_text("ward.csv")
    person.picture("2-upload")
    person.click(person.button("Upload"))
    person.click(person.link("Open the data set"))
    expect(page.get_by_role("main")).to_contain_text("no row rejected")
    person.picture("3-data")
    person.click(person.link("Train a model"))
    page.get_by_text("Settings", exact=True).click()  # of which the test needs one: others would take minutes
    page.get_by_label("Generator").select_option("independent")
    person.click(person.button("Start training"))
    person.click(person.link("Open the model"))
    expect(page.get_by_role("main")).to_contain_text("Does it remember anyone?")
    person.picture("4-model")
    person.click(person.link("Build a cohort"))
    page.locator("#estimate .big").wait_for()
    person.picture("5-builder")
    person.click(person.button("Generate"))
    person.click(person.link("Open the cohort"))
    with page.expect_download() as download:
        person.click(person.link("long.csv"))  # which is there once the cohort has been evaluated
    assert len(download.value.path().read_text().splitlines()) > 1000
    person.picture("6-cohort")
    assert person.clicks <= 12
    person.click(person.link("Report"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Report on a synthetic cohort")
    assert "Data hash" in page.inner_text("main") and "ward.csv" in page.inner_text("main")
    person.picture("7-report")
    assert person.wrong == [] and person.elsewhere == []
    person.context.close()


def _by_keyboard(person: Person, key: str, table: Path) -> None:
    page = person.page
    page.on(
        "filechooser", lambda chooser: chooser.set_files(table)
    )  # before the key: asked for beside it, one can open unseen
    person.goto("/login")
    person.tab_to(page.get_by_label("API key"))
    page.keyboard.type(key)
    page.keyboard.press("Enter")
    person.press(person.link("Upload data"))
    person.tab_to(page.locator("#file"))
    page.keyboard.press("Enter")
    expect(page.locator("#chosen")).to_contain_text("ward.csv")
    person.tab_to(page.get_by_label("Name"))
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    person.press(person.link("Open the data set"))
    person.press(person.link("Train a model"))
    person.press(page.get_by_text("Settings", exact=True))
    person.tab_to(page.get_by_label("Generator"))
    page.keyboard.type("indep")
    person.press(person.button("Start training"))
    person.press(person.link("Open the model"))
    person.press(person.link("Build a cohort"))
    person.tab_to(page.get_by_role("combobox", name="and none of"))
    page.keyboard.type("003")
    page.locator("#none_of-list [role=option]").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#none_of-title ~ .chips")).to_contain_text("ICD9DX:003")
    person.press(person.button("Generate"))
    person.press(person.link("Open the cohort"))
    with page.expect_download() as download:
        person.press(person.link("long.csv"))
    assert "ICD9DX,003" not in download.value.path().read_text()
    assert person.wrong == [] and person.elsewhere == []
    person.context.close()


def _as_analyst(person: Person, key: str) -> None:
    """Sees no upload and no counts, and has records at once: no real record is looked at for them."""
    person.log_in(key)
    page = person.page
    assert person.link("Upload data").count() == person.link("Train a model").count() == 0
    page.get_by_role("link", name="by keyboard").first.click()
    expect(page.get_by_role("main")).to_contain_text("not shown")
    person.goto("/")
    person.link("Build a cohort").click()
    page.locator("#estimate .big").wait_for()
    person.picture("8-phone")
    person.button("Generate").click()
    person.link("Open the cohort").click()
    with page.expect_download() as download:
        person.link("long.csv").click()
    assert download.value.path().stat().st_size > 1000
    assert person.wrong == [] and person.elsewhere == []
    person.context.close()
