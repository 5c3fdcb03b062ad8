"""The cohort builder of a model of patients over time, in a real browser and by the keyboard alone."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.api.conftest import settings_for
from tests.api.front import Front
from tests.api.test_gate import audit
from tests.api.test_history_estimates import DRAWN, E11, E84
from tests.browser.people import DESK, Person

NAMES = {E11: "Type 2 diabetes mellitus", E84: "Cystic fibrosis"}


def test_an_order_of_codes_is_asked_for_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    with Front(settings_for(tmp_path, f"sqlite:///{tmp_path / 'db.sqlite'}")) as front:
        caller = front.as_owner("someone")
        model = caller.model(generator="visits", drawn=DRAWN, audit=audit("good"), names=NAMES)
        person = Person(browser, front.url, DESK)
        person.log_in(caller.key)
        page = person.goto(f"/app/cohorts/new?model={model}")
        expect(page.locator("#estimate .big")).to_have_text("100 %")
        assert person.barriers() == []
        for name, typed in (("In this order: first", "diabets"), ("and only later", "cystic")):
            person.tab_to(page.get_by_role("combobox", name=name))
            page.keyboard.type(typed)
            page.get_by_role("option").first.wait_for()
            page.keyboard.press("ArrowDown")
            page.keyboard.press("Enter")
        expect(page.locator("#estimate .big")).to_have_text("40 %")
        expect(page.locator("#estimate")).to_contain_text("400 of 1,000")
        person.tab_to(page.get_by_label("Visits, at least"))
        page.keyboard.type("3")
        expect(page.locator("#estimate")).to_contain_text("Would be withheld")
        page.keyboard.press("Backspace")
        expect(page.locator("#estimate .big")).to_have_text("40 %")
        person.press(person.button("Preview 5 patients"))
        expect(page.locator("#preview h3")).to_have_count(5)
        expect(page.locator("#preview tbody tr")).to_have_count(10)
        assert person.barriers() == [] and person.wrong == [] and person.elsewhere == []
        person.press(person.button("Generate"))
        page.wait_for_url("**/app/jobs/job_*")
        person.context.close()
