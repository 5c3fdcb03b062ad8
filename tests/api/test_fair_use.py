"""What one owner may have at a time, and how somebody who tries keys out is slowed down."""

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from app.commands.owners import cli as owners
from app.failed_logins import WINDOW_SECONDS, FailedLogins
from ehr.errors import TooManyFailuresError
from model_store.repositories import OwnerRepository
from model_store.tables import Cohort, Dataset
from tests.api.front import Caller, Front
from tests.api.test_problems import assert_problem

CSV = {"file": ("a.csv", b"record_id,code\n1,a\n")}


def limit(caller: Caller, **limits: int) -> None:
    with caller.front.services.database.session_scope() as session:
        OwnerRepository(session).change(caller.owner, None, limits)


def test_as_many_jobs_as_an_owner_may_have(caller: Caller, stranger: Caller) -> None:
    limit(caller, queued_jobs=1)
    body = {"dataset_id": caller.dataset()}
    accepted = caller.http.post("/train?priority=high", json=body, headers={"Idempotency-Key": "k"})
    assert accepted.status_code == 202 and accepted.json()["priority"] == 1
    refused = caller.http.post("/train", json=body)
    assert_problem(refused, 429, "quota")
    assert refused.headers["Retry-After"] == "30"
    told = refused.json()
    assert (told["counted"], told["cap"], told["used"], told["asked"]) == ("queued_jobs", 1, 1, 1)
    assert "ehr-d3pm owners limit" in told["detail"]
    assert caller.http.post("/datasets", files=CSV).status_code == 429
    replayed = caller.http.post("/train?priority=high", json=body, headers={"Idempotency-Key": "k"})
    assert replayed.json()["id"] == accepted.json()["id"]  # what was accepted is not refused afterwards
    assert stranger.http.post("/train", json={"dataset_id": stranger.dataset()}).status_code == 202
    caller.http.post(f"/jobs/{accepted.json()['id']}/cancel").raise_for_status()
    assert caller.http.post("/train", json=body).status_code == 202


def test_records_and_bytes(caller: Caller) -> None:
    limit(caller, queued_records=100, stored_bytes=10)
    model = caller.model()
    assert caller.http.post("/generate", json={"model_id": model, "n": 60}).status_code == 202
    refused = caller.http.post("/generate", json={"model_id": model, "n": 60})
    assert_problem(refused, 429, "quota")
    assert refused.json()["counted"] == "queued_records" and refused.headers["Retry-After"] == "30"
    never = caller.http.post("/generate", json={"model_id": model, "n": 160})
    assert never.status_code == 429 and "Retry-After" not in never.headers  # waiting would not help
    upload = caller.http.post("/datasets", files=CSV)
    assert upload.json()["counted"] == "stored_bytes" and "Retry-After" not in upload.headers
    assert "Delete some" in upload.json()["detail"]


def test_bytes_of_real_records_are_told_to_nobody_who_asks_for_cohorts(caller: Caller) -> None:
    """Whoever knows all patients but one could try out what the last one adds to them."""
    limit(caller, stored_bytes=1_000)
    model, cohort = caller.model(dataset_id=caller.dataset()), caller.cohort([[[0]]])
    analyst = caller.front.as_owner(caller.owner, "generate", "read")
    with caller.front.services.database.session_scope() as session:
        session.execute(update(Dataset).where(Dataset.owner == caller.owner).values(bytes=717_000))
    request = {"model_id": model, "n": 5}
    assert analyst.http.post("/generate", json=request).status_code == 202
    with caller.front.services.database.session_scope() as session:
        session.execute(update(Cohort).where(Cohort.job_id == cohort).values(bytes=2_000))
    refused = analyst.http.post("/generate", json=request)
    assert_problem(refused, 429, "quota")
    assert refused.json()["counted"] == "stored_bytes" and "2,000" in refused.text and "717" not in refused.text
    assert "719," in caller.http.post("/datasets", files=CSV).text  # who holds the data is told


def test_a_priority_is_one_of_three(caller: Caller) -> None:
    assert caller.http.post("/train?priority=9", json={"dataset_id": caller.dataset()}).status_code == 422


def test_the_command(sqlite_caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", sqlite_caller.front.settings.database_url)
    job = sqlite_caller.job("generate", n=7)
    changed = CliRunner().invoke(owners, ["limit", sqlite_caller.owner, "--weight", "2.5", "--queued-records", "50"])
    assert changed.exit_code == 0 and changed.output == f"{sqlite_caller.owner}: weight 2.5, queued records 50\n"
    listed = CliRunner().invoke(owners, ["list", "--json"]).output
    assert f'"owner": "{sqlite_caller.owner}"' in listed and '"queued_records": "7 of 50"' in listed, job
    again = CliRunner().invoke(owners, ["limit", sqlite_caller.owner, "--general"])
    assert again.output == f"{sqlite_caller.owner}: weight 1, as the settings say\n"
    assert CliRunner().invoke(owners, ["limit", sqlite_caller.owner]).exit_code != 0


def test_failed_logins_are_slowed_down_and_others_are_not() -> None:
    clock = [0.0]
    logins = FailedLogins(2, clock=lambda: clock[0])
    logins.worked("good")
    for _ in range(2):
        logins.check("a", "bad")
        logins.failed("a")
    with pytest.raises(TooManyFailuresError) as refused:
        logins.check("a", "bad")
    assert refused.value.wait_seconds == WINDOW_SECONDS
    logins.check("a", "good")  # came before with a valid key: behind one proxy are many people
    logins.check("b", "bad")
    clock[0] = WINDOW_SECONDS + 1
    logins.check("a", "bad")


def test_a_flood_of_wrong_keys_is_a_429(front: Front, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caller.http.get("/jobs").status_code == 200
    monkeypatch.setattr(front.services, "failed_logins", FailedLogins(3))
    wrong = {"Authorization": "Bearer ehr_wrong"}
    answers = [front.get("/jobs", headers=wrong) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429]
    assert_problem(answers[-1], 429, "too-many-failures")
    assert 0 < int(answers[-1].headers["Retry-After"]) <= WINDOW_SECONDS
    # behind a proxy on this machine, or one that FORWARDED_ALLOW_IPS names, addresses are those of its clients
    behind = [front.get("/jobs", headers=wrong | {"X-Forwarded-For": f"192.0.2.{n}"}) for n in (1, 1, 1, 1, 2)]
    assert [answer.status_code for answer in behind] == [401, 401, 401, 429, 401]
