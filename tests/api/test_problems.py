"""Errors: RFC 9457 everywhere, and every class of error has its row."""

import importlib
import pkgutil
from pathlib import Path

import httpx
import pytest

import model_store
from app import problems
from app.problems import MEDIA_TYPE, PROBLEMS, ROW_OF, TYPE_PREFIX
from ehr.errors import EhrError
from tests.api.conftest import settings_for
from tests.api.front import Caller, Front


def all_subclasses(cls: type) -> set[type]:
    return {cls} | {found for child in cls.__subclasses__() for found in all_subclasses(child)}


def assert_problem(answer: httpx.Response, status: int, slug: str) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    body: dict[str, object] = answer.json()
    assert body["type"] == TYPE_PREFIX + slug
    assert body["status"] == status
    assert body["title"] and body["detail"]
    assert body["request_id"] == answer.headers["x-request-id"]
    return body


def test_every_error_class_has_a_row() -> None:
    for module in pkgutil.walk_packages(model_store.__path__, "model_store."):
        if "migrations" not in module.name:
            importlib.import_module(module.name)
    packages = ("app", "ehr", "model_store", "runtime")
    ours = {error for error in all_subclasses(EhrError) if error.__module__.split(".")[0] in packages}
    assert ours - set(ROW_OF) == set()


def test_rows_are_unique() -> None:
    assert len(ROW_OF) == len(PROBLEMS)
    for row in PROBLEMS:
        assert 400 <= row.status < 600
        assert row.slug == row.slug.lower() and " " not in row.slug


def test_unknown_path(caller: Caller) -> None:
    assert_problem(caller.http.get("/nothing/here"), 404, "not-found")
    assert_problem(caller.http.get("/jobs/"), 404, "not-found")


def test_wrong_method_tells_what_is_allowed(caller: Caller) -> None:
    answer = caller.http.put("/jobs")
    assert_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET"


def test_validation_names_the_field_and_what_is_allowed(caller: Caller) -> None:
    body = {"dataset_id": "x", "preset": "quick", "sedd": 1}
    found = assert_problem(caller.http.post("/train", json=body), 422, "invalid-request")
    fields = {e["field"]: e["message"] for e in found["errors"]}  # type: ignore[attr-defined]
    assert "'fast'" in fields["body.preset"]
    assert "body.sedd" in fields


def test_json_that_breaks_off_is_malformed_and_not_invalid(caller: Caller) -> None:
    answer = caller.http.post("/train", content=b'{"seed": 1,', headers={"content-type": "application/json"})
    found = assert_problem(answer, 400, "malformed")
    assert "not JSON" in str(found["detail"]) and "character 11" in str(found["detail"])
    form = {"files": {"file": b"x"}, "data": {"groups": "[{"}}  # JSON in a field is a field that is wrong
    assert_problem(caller.http.post("/datasets", **form), 422, "invalid-request")  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b"", b"{", b"[1", b"\xff\xfe", b'{"a":' * 20_000])
def test_bodies_that_are_no_json(caller: Caller, body: bytes) -> None:
    answer = caller.http.post("/train", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 413, 422)
    assert answer.headers["content-type"] == MEDIA_TYPE


@pytest.mark.parametrize("chunked", [False, True])
def test_large_bodies_are_refused(caller: Caller, chunked: bool) -> None:
    body = b'{"dataset_id": "' + b"x" * 200_000 + b'"}'
    content = iter([body[:1000], body[1000:]]) if chunked else body
    answer = caller.http.post("/train", content=content, headers={"content-type": "application/json"})
    assert_problem(answer, 413, "too-large")


def test_settings_that_cannot_be_stored(caller: Caller) -> None:
    dataset = caller.dataset()
    for text in (
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\u0000"}',
        '{"a": "\\ud800"}',
        '{"a": 99999999999999999999999}',
    ):
        body = f'{{"dataset_id": "{dataset}", "settings": {text}}}'
        answer = caller.http.post("/train", content=body, headers={"content-type": "application/json"})
        assert_problem(answer, 422, "invalid-request")
    deep: dict[str, object] = {}
    for _ in range(50):
        deep = {"a": deep}
    assert_problem(caller.http.post("/train", json={"dataset_id": dataset, "settings": deep}), 422, "invalid-request")


def test_bugs_do_not_leak(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Front(settings_for(tmp_path, f"sqlite:///{tmp_path / 'bug.sqlite'}")) as front:

        @front.app.get("/bug")
        def bug() -> None:
            raise RuntimeError("patient 4711 has ICD10CM:E84")

        answer = front.get("/bug")
    body = assert_problem(answer, 500, "internal")
    assert "4711" not in str(body)


def test_database_that_is_away(tmp_path: Path) -> None:
    with Front(settings_for(tmp_path, f"sqlite:///{tmp_path / 'gone.sqlite'}")) as front:
        front.services.sweeper.stop()
        front.services.database.close()
        front.services.database.engine = problems_engine()
        answer = front.get("/jobs")
    assert_problem(answer, 503, "database-unavailable")
    assert "retry-after" in answer.headers


def problems_engine() -> object:
    from model_store.database import open_engine

    return open_engine("sqlite:////nowhere/at/all.sqlite")


def test_problem_words_are_the_table(caller: Caller) -> None:
    """`type` is a promise: these may be added to, never changed."""
    known = {row.slug for row in problems.PROBLEMS} | {slug for slug, _ in problems.HTTP_SLUGS.values()}
    promised = {
        "not-found", "conflict", "idempotency-conflict", "invalid-request", "unknown-code", "bad-condition", "bad-data",
        "too-large", "unauthorized", "forbidden", "store-unavailable", "store-full", "corrupt", "schema", "not-ready",
        "broker-unavailable", "database-unavailable", "busy", "malformed", "method-not-allowed", "internal",
    }  # fmt: skip
    assert promised <= known


def test_the_manual_lists_every_problem() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    known = {row.slug for row in problems.PROBLEMS} | {slug for slug, _ in problems.HTTP_SLUGS.values()}
    assert {slug for slug in known if f"`{slug}`" not in manual} == set()
