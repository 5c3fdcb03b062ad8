"""Jobs as clients see them: lists, progress, events, cancel, retry."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from ehr.errors import StoreError
from model_store.repositories import Claim, JobRepository, LeaseRepository
from model_store.tables import Job
from tests.api.front import Caller, Front
from tests.api.test_problems import assert_problem

PROGRESS: dict[str, Any] = {
    "step": "train",
    "steps": [
        {"name": "load", "value": 1, "maximum": 1},
        {"name": "train", "value": 30, "maximum": 120, "unit": "steps"},
        {"name": "store", "value": 0, "maximum": None},
    ],
    "loss": 3.5,
    "remaining_seconds": 12.5,
}


def claim(front: Front, job_id: str) -> Claim:
    with front.services.database.session_scope() as session:
        claimed = LeaseRepository(session).claim(job_id, "worker-1", 60)
    assert claimed is not None
    return claimed


def beat(front: Front, claimed: Claim, progress: dict[str, Any], keeps: bool = True) -> None:
    with front.services.database.session_scope() as session:
        LeaseRepository(session).heartbeat(claimed, 60, progress, keeps)


def end(front: Front, claimed: Claim, *, fail: bool = False) -> None:
    with front.services.database.session_scope() as session:
        leases = LeaseRepository(session)
        if fail:
            leases.fail(claimed, "bad-data", "there are no records")
        else:
            leases.succeed(claimed, {"model_id": "mdl_x"})


def events_of(answer: httpx.Response) -> list[dict[str, str]]:
    blocks = [block for block in answer.text.split("\n\n") if block.startswith("id:")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


def test_progress_and_remaining_time(front: Front, caller: Caller) -> None:
    job_id = caller.job("train", model_id="mdl_" + "0" * 32)
    claimed = claim(front, job_id)
    beat(front, claimed, PROGRESS)
    job = caller.http.get(f"/jobs/{job_id}").json()
    assert job["state"] == "running" and job["attempt"] == 1
    progress = job["progress"]
    assert (progress["step"], progress["remaining_seconds"]) == ("train", 12.5)
    assert progress["steps"][1] == {"name": "train", "value": 30, "maximum": 120, "unit": "steps"}
    assert progress["details"] == {"loss": 3.5}
    end(front, claimed)
    job = caller.http.get(f"/jobs/{job_id}").json()
    assert job["state"] == "succeeded" and job["result"] == {"model_id": "mdl_x"} and job["error"] is None
    assert [step["value"] for step in job["progress"]["steps"]] == [1, 120, 1]
    assert job["started_at"] <= job["finished_at"] and job["created_at"].endswith(("Z", "+00:00"))


def test_lists_page_by_cursor(caller: Caller) -> None:
    made = [caller.job("train") for _ in range(7)] + [caller.job("generate")]
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(5):
        query = {"limit": 3} | ({} if cursor is None else {"cursor": cursor})
        page = caller.http.get("/jobs", params=query).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == 8 and set(seen) == set(made)
    assert [j["kind"] for j in caller.http.get("/jobs", params={"kind": "generate"}).json()["items"]] == ["generate"]
    assert caller.http.get("/jobs", params={"state": "failed"}).json()["items"] == []
    with caller.client() as client:
        assert [job["id"] for job in client.jobs(limit=5)] == seen[:5]


BAD_CURSORS = ["x", "bm9wZQ==", "WzEsMl0=", "W10=", "é", "WzFlOTk5LCAiYSJd", "WyJhIiwgImIiXQ==", "a" * 400]


@pytest.mark.parametrize("cursor", [*BAD_CURSORS, "WzEsICJcdTAwMDAiXQ=="])
def test_cursors_that_nobody_gave_out(caller: Caller, cursor: str) -> None:
    for path in ("/jobs", "/datasets", "/models", "/cohorts"):
        assert caller.http.get(path, params={"cursor": cursor}).status_code in (200, 422)


def test_queries_are_checked(caller: Caller) -> None:
    for query in ({"limit": 0}, {"limit": 501}, {"limit": "x"}, {"kind": "mining"}, {"state": "lost"}):
        assert_problem(caller.http.get("/jobs", params=query), 422, "invalid-request")


def test_events_replay_from_the_last_one_seen(front: Front, caller: Caller) -> None:
    job_id = caller.job("train", model_id="mdl_" + "0" * 32)
    claimed = claim(front, job_id)
    beat(front, claimed, PROGRESS)
    end(front, claimed)
    answer = caller.http.get(f"/jobs/{job_id}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer)
    assert [e["event"] for e in events] == ["state", "state", "progress", "state"]
    assert '"succeeded"' in events[-1]["data"]
    for position, event in enumerate(events):
        again = caller.http.get(f"/jobs/{job_id}/events", headers={"Last-Event-ID": event["id"]})
        if position == len(events) - 1:
            assert again.status_code == 204  # tells EventSource not to come back
        else:
            assert events_of(again) == events[position + 1 :]
    for wrong in ("x", "-1", str(2**64), "1.5"):
        answer = caller.http.get(f"/jobs/{job_id}/events", headers={"Last-Event-ID": wrong})
        assert_problem(answer, 422, "invalid-request")


def test_events_come_as_they_happen(front: Front, caller: Caller) -> None:
    job_id = caller.job("train", model_id="mdl_" + "0" * 32)
    arrived: list[tuple[float, dict[str, Any]]] = []

    def follow() -> None:
        with caller.client() as client:
            for event in client.events(job_id):
                arrived.append((time.monotonic(), event["data"]))

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(1)
    claimed = claim(front, job_id)
    beat(front, claimed, PROGRESS)
    time.sleep(2.5)
    beat(front, claimed, PROGRESS | {"loss": 1.5}, keeps=False)  # is seen by who looks on, and not kept
    time.sleep(2.5)
    told = time.monotonic()
    end(front, claimed)
    thread.join(20)
    assert not thread.is_alive()
    states = [data.get("state") for _, data in arrived]
    assert states == ["queued", "running", None, None, "succeeded"]
    assert arrived[3][0] < told and arrived[3][1]["loss"] == 1.5  # not held back until the end
    events = events_of(caller.http.get(f"/jobs/{job_id}/events"))
    assert [e["event"] for e in events] == ["state", "state", "progress", "state"]


def test_cancel_queued_and_finished(front: Front, caller: Caller) -> None:
    queued, done = (caller.job("train", model_id="mdl_" + "0" * 32) for _ in range(2))
    answer = caller.http.post(f"/jobs/{queued}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    assert caller.http.post(f"/jobs/{queued}/cancel").json()["state"] == "cancelled"
    end(front, claim(front, done))
    assert_problem(caller.http.post(f"/jobs/{done}/cancel"), 409, "conflict")
    running = caller.job("train", model_id="mdl_" + "0" * 32)
    claim(front, running)
    assert caller.http.post(f"/jobs/{running}/cancel").json()["state"] == "cancelling"


def test_retry(front: Front, caller: Caller) -> None:
    job_id = caller.job("train", model_id="mdl_" + "0" * 32)
    assert_problem(caller.http.post(f"/jobs/{job_id}/retry"), 409, "conflict")
    end(front, claim(front, job_id), fail=True)
    job = caller.http.get(f"/jobs/{job_id}").json()
    assert job["state"] == "failed" and job["error"] == {"type": "bad-data", "detail": "there are no records"}
    again = caller.http.post(f"/jobs/{job_id}/retry").json()
    assert again["state"] == "queued" and again["error"] is None
    end(front, claim(front, job_id))
    states = [json.loads(e["data"])["state"] for e in events_of(caller.http.get(f"/jobs/{job_id}/events"))]
    assert states == ["queued", "running", "failed", "queued", "running", "succeeded"]


def test_a_broker_that_is_down_does_not_matter(front: Front, caller: Caller) -> None:
    """Nobody listens at this front's broker socket: submissions are accepted and wait."""
    job = caller.http.post("/generate", json={"model_id": caller.model(), "n": 5})
    assert job.status_code == 202
    answer = caller.http.get("/readyz")
    assert answer.status_code == 200
    found = answer.json()
    assert found["status"] == "ready" and found["impaired"] == ["broker"]
    assert found["checks"]["database"] == found["checks"]["schema"] == "ok" and "broker" in found["checks"]["broker"]
    assert caller.http.get("/healthz").json() == {"status": "alive"}
    with front.services.database.read_scope() as session:
        row: Job = JobRepository(session).get(caller.owner, job.json()["id"])
    assert row.state == "queued"


def test_readiness_tells_each_part(front: Front, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the store what is in the database is still answered; without the database or its schema nothing is."""

    def away(reason: str) -> Callable[..., None]:
        def check(*_: object) -> None:
            raise StoreError(reason)

        return check

    monkeypatch.setattr(front.services.store, "check", away("the bucket does not answer"))
    answer = caller.http.get("/readyz")
    assert answer.status_code == 200 and answer.json()["impaired"] == ["broker", "store"]
    assert answer.json()["checks"]["store"] == "the bucket does not answer"
    assert caller.http.get("/jobs").status_code == 200
    monkeypatch.setattr("app.routers.health._ask", away("gone"))
    answer = caller.http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"] == "gone" and answer.json()["checks"]["schema"] == "ok"


def test_a_log_tells_states_and_steps_and_progress_is_thinned_out(front: Front, caller: Caller) -> None:
    job = caller.job("train", name="long", model_id="mdl_" + "0" * 32)
    for _ in range(2):
        claimed = claim(front, job)
        for step in ("load", "train", "train"):
            beat(front, claimed, PROGRESS | {"step": step})
        end(front, claimed, fail=True)
        caller.http.post(f"/jobs/{job}/retry").raise_for_status()
    lines = caller.http.get(f"/jobs/{job}/log").json()
    once = [("running", None), (None, "load"), (None, "train"), ("failed", None), ("queued", None)]
    assert [(line["state"], line["step"]) for line in lines] == [("queued", None), *once, *once]
    assert [line["attempt"] for line in lines if line["state"] == "running"] == [1, 2]
    assert all(line["error"]["type"] for line in lines if line["state"] == "failed")
    analyst = front.as_owner(caller.owner, "generate", "read").http
    assert {line["error"] for line in analyst.get(f"/jobs/{job}/log").json() if line["state"] == "failed"} == {None}
    with front.services.database.read_scope() as session:
        told = [event.id for event in JobRepository(session).progress(caller.owner, job, 100)]
        thinned = [event.id for event in JobRepository(session).progress(caller.owner, job, 3)]
    assert len(told) == 6 and thinned == [told[0], told[2], told[-1]]
    budgets = caller.http.get("/budgets").json()
    assert budgets["queued_jobs"]["used"] == 1 and budgets["stored_bytes"]["used"] == 0
