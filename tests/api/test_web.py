"""The web application without a browser: sessions, who sees what, and what pages may load."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from app import web
from app.web.shell import SECTIONS
from model_store.repositories import KeyRepository
from model_store.repositories.sessions import SessionRepository
from model_store.tables import LoginSession
from tests.api.front import Caller, Front
from tests.api.test_problems import assert_problem
from tests.api.test_readers import SECRET, secrets_of
from tests.service.servers import PATIENCE_SECONDS

PAGES = [
    "/", "/app/data", "/app/data/{dataset_id}", "/app/data/{dataset_id}/codes", "/app/models", "/app/models/new",
    "/app/models/{model_id}", "/app/models/compare?id={model_id}&id={model_id}", "/app/cohorts", "/app/cohorts/new",
    "/app/cohorts/{cohort}", "/app/jobs", "/app/jobs/{cohort}", "/app/jobs/{train}", "/app/jobs/{train}/progress",
    "/app/jobs/{ingest}", "/app/jobs/{evaluate}", "/app/reports", "/app/reports/compare?id={cohort}&id={cohort}",
    "/app/access", "/docs", "/login",
]  # fmt: skip


@pytest.fixture(scope="module")
def sqlite_front(front_of: Callable[[str], Front]) -> Front:
    return front_of("sqlite")


@pytest.fixture
def person(sqlite_front: Front, request: pytest.FixtureRequest) -> Caller:
    return sqlite_front.as_owner(request.node.name[-60:])


@contextmanager
def browser(front: Front) -> Iterator[httpx.Client]:
    """With cookies, as a person has it."""
    with httpx.Client(base_url=front.url, timeout=PATIENCE_SECONDS) as client:
        yield client


def logged_in(client: httpx.Client, key: str) -> httpx.Response:
    return client.post("/login", data={"key": key, "next": "/app/jobs"})


def token_in(page: httpx.Response) -> str:
    found = re.search(r'name="csrf-token" content="([0-9a-f]*)"', page.text)
    assert found is not None
    return found[1]


def test_whoever_is_not_known_is_asked_to_log_in(sqlite_front: Front) -> None:
    with browser(sqlite_front) as client:
        for path in ("/", "/app/access", "/app/jobs/job_" + "0" * 32):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next={path}")
        assert client.get("/docs").status_code == client.get("/login").status_code == 200
        assert client.post("/app/cohorts/estimate", json={"model_id": "x", "n": 1}).status_code == 401
        assert logged_in(client, "ehr_wrong").status_code == 401 and client.get("/").status_code == 303


def test_a_session_is_a_cookie_that_scripts_and_other_sites_cannot_use(person: Caller) -> None:
    with browser(person.front) as client:
        answer = logged_in(client, person.key)
        assert (answer.status_code, answer.headers["location"]) == (303, "/app/jobs")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and person.key not in cookie
        assert client.get("/").status_code == client.get("/jobs").status_code == 200  # pages and the API
        job = person.job(model_id="mdl_" + "0" * 32)
        assert_problem(client.post(f"/jobs/{job}/cancel"), 401, "unauthorized")  # another page made the browser send it
        for wrong in ("", "0" * 64, "\u00e4"):
            headers = {"X-CSRF-Token": wrong.encode()}
            assert client.post(f"/jobs/{job}/cancel", headers=headers).status_code == 401
        headers = {"X-CSRF-Token": token_in(client.get("/"))}
        assert client.post(f"/jobs/{job}/cancel", headers=headers).status_code == 202


def test_a_session_ends_with_its_key_with_time_and_by_logging_out(person: Caller) -> None:
    front = person.front
    with browser(front) as client, browser(front) as other, browser(front) as third:
        for each in (client, other, third):
            logged_in(each, person.key)
        client.post("/logout")  # which another page may make a browser send: the session goes on, the cookie too
        client.cookies.set("ehr_session", other.cookies["ehr_session"])
        assert other.get("/jobs").status_code == 200
        kept = dict(other.cookies)
        assert other.post("/logout", data={"csrf": token_in(other.get("/"))}).headers["location"] == "/login"
        assert httpx.get(f"{front.url}/jobs", cookies=kept).status_code == 401
        with front.services.database.session_scope() as session:
            for row in session.query(LoginSession):
                row.expires_at = 0.0
        assert third.get("/jobs").status_code == 401
        logged_in(third, person.key)
        with front.services.database.session_scope() as session:
            assert session.query(LoginSession).count() == 1  # those that have expired are forgotten
            keys = KeyRepository(session)
            keys.revoke(keys.authenticate(person.key).id)
        assert third.get("/jobs").status_code == 401 and third.get("/").status_code == 303


def test_logging_in_leads_nowhere_else(person: Caller) -> None:
    with browser(person.front) as client:
        for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example"):
            answer = client.post("/login", data={"key": person.key, "next": elsewhere})
            assert answer.headers["location"] == "/"
        answer = client.post("/login", data={"key": person.key}, headers={"Origin": "https://evil.example"})
        assert answer.status_code == 403


def test_a_token_is_nowhere_in_the_database(person: Caller) -> None:
    with person.front.services.database.session_scope() as session:
        token = SessionRepository(session).begin(KeyRepository(session).authenticate(person.key))
        assert all(token not in str(vars(row)) for row in session.query(LoginSession))


def test_pages_show_nobody_more_than_the_api_does(person: Caller) -> None:
    """Every page, with secrets planted: custodians see that there is something, analysts see nothing of it."""
    ids = secrets_of(person)
    analyst = person.front.as_owner(person.owner, "generate", "read")
    stranger = person.front.as_owner(f"not {person.owner}"[:60])
    told = 0
    for path in PAGES:
        address = path.format(**ids)
        ours, theirs = person.http.get(address), analyst.http.get(address)
        assert ours.status_code in (200, 303), (address, ours.status_code)
        told += bool(SECRET.search(ours.text.replace(",", "")))
        assert theirs.status_code in (200, 303, 403), address
        assert not SECRET.findall(theirs.text.replace(",", "")), address
        if "{" in path:
            assert stranger.http.get(address).status_code == 404, address
        page = ours.text
        assert set(re.findall(r'(?:src|href|action)="(?!/|#|\?)([^"]*)', page)) == set()  # nothing from elsewhere
        assert not re.search(r"<script(?! src)|<style|style=|\son\w+=", page)  # which the policy would forbid
        if "text/html" in ours.headers.get("content-type", ""):
            assert "script-src 'self'" in ours.headers["content-security-policy"]
    assert told >= 5


def test_a_page_for_each_section_and_files_that_may_be_kept(person: Caller) -> None:
    page = person.http.get("/")
    for _, title, address in SECTIONS:
        assert f">{title}</a>" in page.text and person.http.get(address).status_code == 200
    for address in re.findall(r'(?:src|href)="(/static/[^"]*)"', page.text):
        answer = person.http.get(address)
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
    assert person.http.get("/static/..%2fsettings.py").status_code == 404
    assert person.http.get("/static/app.css", headers={"accept-encoding": "identity"}).text.startswith(":root")


def test_refusals_are_pages(person: Caller) -> None:
    reader = person.front.as_owner(person.owner, "read")
    answer = reader.http.get("/app/models/new")
    assert answer.status_code == 403 and "the scope &#39;train&#39;" in answer.text and "<h1>" in answer.text
    assert person.http.get("/app/jobs?state=odd").status_code == 422
    assert "no such thing" in person.http.get("/app/data/ds_" + "0" * 32).text


def test_pages_are_no_part_of_the_api(sqlite_front: Front) -> None:
    paths = {route.path for router in web.ROUTERS for route in router.routes}  # type: ignore[attr-defined]
    assert "/app/cohorts/new" in paths and not paths & set(sqlite_front.app.openapi()["paths"])


def test_withheld_cohorts_are_listed_with_what_the_key_may_know(person: Caller) -> None:
    analyst = person.front.as_owner(person.owner, "generate", "read")
    cohort = person.cohort([[[0]]])
    assert person.http.get("/withheld").json() == []
    person.report({}, cohort, privacy="fail", withholds="Someone is in it.")
    for caller, knows in ((person, True), (analyst, False)):
        (told,) = caller.http.get("/withheld").json()
        assert told["cohort_id"] == cohort and ("Someone is in it." in told["why"]) == knows
        assert ("Someone is in it." in caller.http.get("/app/access").text) == knows
        assert "Release this cohort" in person.http.get(f"/app/cohorts/{cohort}").text
    assert "Release this cohort" not in analyst.http.get(f"/app/cohorts/{cohort}").text
    person.http.post(f"/cohorts/{cohort}/release", json={"reason": "it is a test"}).raise_for_status()
    assert person.http.get("/withheld").json() == []
    (released,) = person.http.get("/releases").json()
    assert (released["cohort_id"], released["reason"]) == (cohort, "it is a test")


def test_keys_are_listed_without_what_opens(person: Caller) -> None:
    listed = person.http.get("/keys").json()
    assert [each["prefix"] for each in listed] == [person.key[:12]] and person.key not in str(listed)


def test_the_open_service_needs_no_login_and_ignores_cookies_of_others(open_front: Front) -> None:
    answer = open_front.get("/", cookies={"ehr_session": "of another service on this machine"})
    assert answer.status_code == 200 and "open on this machine" in answer.text
    assert open_front.get("/login").status_code == 303


def test_a_model_is_renamed_tagged_and_noted_and_nothing_else(person: Caller) -> None:
    analyst = person.front.as_owner(person.owner, "generate", "read")
    model = person.model()
    before = person.http.get(f"/models/{model}").json()
    changes = {"name": "cardiology", "tags": ["pilot"], "notes": "<b>for</b> the paper"}
    told = person.http.patch(f"/models/{model}", json=changes).json()
    assert told == before | {
        "name": "cardiology",
        "details": before["details"] | {k: changes[k] for k in ("tags", "notes")},
    }
    person.http.patch(f"/models/{model}", json={"tags": []}).raise_for_status()
    seen = analyst.http.get(f"/models/{model}").json()
    assert (seen["name"], seen["details"]["tags"], seen["details"]["notes"]) == ("cardiology", [], changes["notes"])
    assert "&lt;b&gt;for&lt;/b&gt; the paper" in analyst.http.get(f"/app/models/{model}").text
    assert_problem(analyst.http.patch(f"/models/{model}", json={"name": "x"}), 403, "forbidden")
    assert_problem(person.http.patch(f"/models/{model}", json={"generator": "x"}), 422, "invalid-request")
