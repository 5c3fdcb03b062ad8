"""What custodians do beside uploading: fetch from elsewhere, write elsewhere, release what is withheld."""

from playwright.sync_api import Browser, expect

from tests.browser.library import Library
from tests.browser.people import DESK, Person


def test_records_come_from_elsewhere_and_go_there(browser: Browser, library: Library) -> None:
    """What the forms send is what the API is asked for; nobody carries it out here."""
    person = Person(browser, library.caller.front.url, DESK)
    person.log_in(library.caller.key)
    page = person.goto("/app/data")
    page.get_by_text("Files in a bucket or on a server").click()
    addresses = page.get_by_label("Addresses, one to a line")
    expect(addresses).to_have_value("s3://lake/in/")
    addresses.fill("s3://lake/in/2024/\ns3://lake/in/2025.csv")
    person.button("Fetch").click()
    page.wait_for_url("**/app/jobs/job_*")
    sent = library.caller.http.get(f"/jobs/{page.url.rsplit('/', 1)[1]}").json()["request"]
    assert sent["source"]["urls"] == ["s3://lake/in/2024/", "s3://lake/in/2025.csv"] and sent["may_be_attacked"]
    person.goto("/app/data")
    page.get_by_text("An OMOP CDM in a database").click()
    page.get_by_label("Schema of the clinical tables").fill("cdm")
    page.get_by_label("Only the cohort with the id").fill("42")
    assert person.barriers() == []
    person.button("Fetch").click()
    page.wait_for_url("**/app/jobs/job_*")
    person.goto(f"/app/cohorts/{library.ids['cohort']}")
    page.get_by_text("To a database, as tables of the OMOP CDM").click()
    page.get_by_label("Schema", exact=True).fill("elsewhere")
    assert person.barriers() == []
    person.button("Write").click()
    expect(page.locator("#said")).to_contain_text("this schema is not allowed here; allowed: drawn_*")
    assert "422" in person.wrong.pop()
    page.get_by_label("Schema", exact=True).fill("drawn_1")
    person.button("Write").click()
    page.wait_for_url("**/app/jobs/job_*")
    expect(page.locator(".log")).to_contain_text("waiting")
    assert person.wrong == [] and person.elsewhere == []
    person.context.close()


def test_a_withheld_cohort_is_released_with_a_reason(browser: Browser, library: Library) -> None:
    person = Person(browser, library.caller.front.url, DESK)
    person.log_in(library.caller.key)
    page = person.goto("/app/access")
    page.locator(f"main a[href='/app/cohorts/{library.ids['held']}']").click()
    expect(page.locator("#withheld")).to_contain_text("Someone is in it.")
    assert person.link("long.csv").count() == 0
    page.get_by_label("Why it may leave all the same").fill("the ethics board agreed")
    person.button("Release this cohort").click()
    expect(person.link("long.csv")).to_be_visible()
    person.goto("/app/access")
    expect(page.get_by_role("table", name="Cohorts that were released")).to_contain_text("the ethics board agreed")
    assert person.wrong == [] and person.elsewhere == []
    person.context.close()
