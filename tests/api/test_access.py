"""Who may do what; what belongs to someone else is not there."""

import re
from pathlib import Path

import pytest

from app.access import is_loopback
from ehr.errors import AccessError
from model_store.ids import JOB, new_id
from model_store.repositories import AuditRepository, KeyRepository
from runtime.binding import check_binding
from tests.api.conftest import settings_for
from tests.api.front import Caller, Front
from tests.api.test_problems import assert_problem
from tests.reporting import small_report

BODIES = {
    "train": {"dataset_id": "{dataset_id}"},
    "generate": {"model_id": "{model_id}", "n": 5},
    "probe": {"model_id": "{model_id}"},
    "models/{model_id}": {"name": "x"},
    "reports": {"cohort_id": "{job_id}"},
    "cohorts/{job_id}/exports": {"sink": {"kind": "parquet", "url": "s3://bucket/x/"}},
}


def test_open_on_loopback_without_keys(open_front: Front) -> None:
    assert open_front.get("/jobs").status_code == 200
    assert open_front.get("/jobs", headers={"host": f"localhost:{open_front.port}"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "ehr.example.org"},  # a name that was made to point here
        {"origin": "https://evil.example"},  # a page in the user's browser
        {"origin": "null"},
        {"host": "[::1"},
        {"authorization": "Bearer ehr_wrong"},
    ],
)
def test_open_does_not_mean_open_to_the_web(open_front: Front, headers: dict[str, str]) -> None:
    answer = open_front.get("/jobs", headers=headers)
    assert answer.status_code in (400, 401)


def test_the_service_stays_closed_when_the_last_key_is_revoked(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, f"sqlite:///{tmp_path / 'revoked.sqlite'}")
    with Front(settings) as front:
        assert front.get("/jobs").status_code == 200
        assert front.get("/readyz").json()["open"] is True
        secret = front.key("ada")
        with front.services.database.session_scope() as session:
            keys = KeyRepository(session)
            keys.revoke(keys.authenticate(secret).id)
        answer = front.get("/jobs")
        assert_problem(answer, 401, "unauthorized")
        assert "every API key is revoked" in answer.json()["detail"]
        assert front.get("/readyz").json()["open"] is False
        assert check_binding(settings)
        front.key("ada")
        assert "send an API key" in front.get("/jobs").json()["detail"]


def test_keys_close_the_service(front: Front) -> None:
    answer = front.get("/jobs")
    assert_problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    for secret in ("ehr_nonsense", "x" * 5000, "ehr_"):
        assert front.get("/jobs", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


def test_a_revoked_key_opens_nothing(front: Front) -> None:
    caller = front.as_owner("brief")
    assert caller.http.get("/jobs").status_code == 200
    with front.services.database.session_scope() as session:
        keys = KeyRepository(session)
        keys.revoke(keys.authenticate(caller.key).id)
    assert_problem(caller.http.get("/jobs"), 401, "unauthorized")


SCOPED = [
    ("read", "GET", "/datasets"),
    ("read", "GET", "/models"),
    ("read", "GET", "/cohorts"),
    ("read", "GET", "/reports/job_" + "0" * 32),
    ("data", "POST", "/datasets"),
    ("data", "DELETE", "/datasets/ds_" + "0" * 32),
    ("train", "POST", "/train"),
    ("train", "DELETE", "/models/mdl_" + "0" * 32),
    ("train", "PATCH", "/models/mdl_" + "0" * 32),
    ("generate", "POST", "/generate"),
    ("generate", "DELETE", "/cohorts/job_" + "0" * 32),
    ("data", "POST", "/reports"),
    ("data", "POST", "/cohorts/job_" + "0" * 32 + "/release"),
    ("admin", "GET", "/models/mdl_" + "0" * 32 + "/bundle"),
    ("read", "GET", "/models/mdl_" + "0" * 32 + "/exposure"),
    ("admin", "GET", "/metrics"),
    ("admin", "GET", "/audit"),
    ("admin", "GET", "/keys"),
    ("read", "GET", "/withheld"),
    ("data", "GET", "/releases"),
    ("read", "GET", "/places"),
    ("data", "POST", "/datasets/by-reference"),
    ("generate", "POST", "/cohorts/job_" + "0" * 32 + "/exports"),
    ("generate", "POST", "/probe"),
]


@pytest.mark.parametrize(("scope", "method", "path"), SCOPED)
def test_each_route_needs_its_scope(front: Front, scope: str, method: str, path: str) -> None:
    others = [s for s in ("data", "train", "generate", "read") if s != scope]
    body = {"dataset_id": "x"} if path == "/train" else {"model_id": "x", "n": 1}
    options = {"json": body} if method == "POST" and path != "/datasets" else {}
    if path == "/datasets" and method == "POST":
        options = {"files": {"file": ("a.csv", b"record_id,code\n")}}
    without = front.as_owner("scoped", *others)
    assert_problem(without.http.request(method, path, **options), 403, "forbidden")
    for enough in (scope, "admin"):
        assert front.as_owner("scoped", enough).http.request(method, path, **options).status_code not in (401, 403)


def test_a_cohort_without_a_report_needs_the_scope_admin(front: Front, caller: Caller) -> None:
    """Else a cohort that its report withholds could be made again with the same seed and leave."""
    model = caller.model()
    request = {"model_id": model, "n": 5, "evaluate": False}
    maker = front.as_owner(caller.owner, "generate", "read")
    assert_problem(maker.http.post("/generate", json=request), 403, "forbidden")
    assert maker.http.post("/generate", json=request | {"evaluate": True}).status_code == 202
    assert caller.http.post("/generate", json=request).status_code == 202


def test_cancelling_needs_the_scope_of_the_work(front: Front) -> None:
    owner = front.as_owner("canceller", "train", "read")
    train, ingest = owner.job("train", model_id="mdl_" + "0" * 32), owner.job("ingest", dataset_id="x", files=[])
    assert owner.http.post(f"/jobs/{train}/cancel").status_code == 202
    assert_problem(owner.http.post(f"/jobs/{ingest}/cancel"), 403, "forbidden")


def test_another_owners_ids_are_not_found_on_any_route(front: Front, caller: Caller, stranger: Caller) -> None:
    """Walks the OpenAPI document, so a new route cannot be forgotten."""
    cohort = caller.cohort([[[0]]])
    caller.report({}, cohort)
    ids = {"dataset_id": caller.dataset(), "model_id": caller.model(), "job_id": cohort} | caller.webhook()
    seen = 0
    for path, operations in front.app.openapi()["paths"].items():
        for method in operations:
            named = re.findall(r"{(\w+)}", path)
            body = BODIES.get(path.strip("/"))
            if not named and body is None:
                continue
            url = path.format(**ids, number=0, format="long.csv")
            options = {} if body is None else {"json": {k: _filled(v, ids) for k, v in body.items()}}
            answer = stranger.http.request(method.upper(), url, **options)
            assert answer.status_code == 404, (method, path, answer.status_code)
            missing = stranger.http.request(
                method.upper(), path.format(**{n: _absent(n) for n in ids}, number=0, format="long.csv"), **options
            )
            assert missing.status_code == 404
            seen += 1
    assert seen >= 15
    assert caller.http.get(f"/cohorts/{cohort}").status_code == 200
    assert stranger.http.get("/jobs").json()["items"] == []


def _filled(value: object, ids: dict[str, str]) -> object:
    return value.format(**ids) if isinstance(value, str) else value


def _absent(name: str) -> str:
    kinds = {"dataset_id": "ds_", "model_id": "mdl_", "job_id": "job_", "webhook_id": "wh_", "delivery_id": "msg_"}
    return kinds[name] + "f" * 32


TRICKS = [
    "..",
    "..%2f..%2fetc%2fpasswd",
    "%00",
    "job_" + "0" * 31 + "%0a",
    "job_" + "A" * 32,
    "-1",
    "'%20or%201=1",
    "%ff",
]


@pytest.mark.parametrize("trick", TRICKS)
def test_path_tricks_in_every_id(front: Front, caller: Caller, trick: str) -> None:
    for path, operations in front.app.openapi()["paths"].items():
        if "{" not in path:
            continue
        url = re.sub(r"{\w+}", lambda _: trick, path)
        for method in operations:
            answer = caller.http.request(method.upper(), url)
            if answer.url.path != "/":  # as the client reads `/datasets/..`
                assert answer.status_code in (404, 405, 422), (method, url, answer.status_code)


@pytest.mark.parametrize(
    "trick", ["../../../etc/passwd", "..\\..\\x", "a\u0000b", "/abs", "x" * 150, "job_" + "0" * 32]
)
def test_path_tricks_in_ids_of_bodies(caller: Caller, trick: str) -> None:
    assert caller.http.post("/train", json={"dataset_id": trick}).status_code in (404, 422)
    assert caller.http.post("/generate", json={"model_id": trick, "n": 1}).status_code in (404, 422)


def test_audit_of_submissions_downloads_and_deletions(front: Front, caller: Caller) -> None:
    dataset, model, cohort = caller.dataset(), caller.model(), caller.cohort([[[0]]])
    caller.report(small_report().model_dump(mode="json"), cohort)
    submitted = caller.http.post("/generate", json={"model_id": model, "n": 5}).json()["id"]
    caller.http.post(f"/jobs/{submitted}/cancel")
    caller.http.get(f"/cohorts/{cohort}/records")
    caller.http.get(f"/models/{model}/bundle")
    caller.http.get(f"/reports/{cohort}")
    for path in (f"/datasets/{dataset}", f"/models/{model}", f"/cohorts/{cohort}"):
        assert caller.http.delete(path).status_code == 204
        assert caller.http.get(path).status_code == 404
    with front.services.database.read_scope() as session:
        rows = AuditRepository(session).newest(caller.owner)
    assert {row.action for row in rows} == {
        "submit generate", "cancel", "download cohort", "download model", "download report",
        "delete dataset", "delete model", "delete cohort", "denied",
    }  # fmt: skip
    assert all(row.key_prefix is not None and row.key_prefix == caller.key[:12] for row in rows)


def test_refuses_other_addresses_without_keys(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bind.sqlite'}"
    assert check_binding(settings_for(tmp_path, url)) is False
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(AccessError, match="without API keys"):
            check_binding(settings_for(tmp_path, url, host=host))
    with Front(settings_for(tmp_path, url)) as front:
        front.key("someone")
    assert check_binding(settings_for(tmp_path, url, host="0.0.0.0")) is True


def test_loopback_names() -> None:
    assert all(map(is_loopback, ("localhost", "LOCALHOST", "127.0.0.1", "127.3.4.5", "::1", "[::1]")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "localhost.evil.org", "127.0.0.1.nip.io", "10.0.0.1", "::")))


def test_ids_are_not_guessable() -> None:
    assert len({new_id(JOB) for _ in range(100)}) == 100
