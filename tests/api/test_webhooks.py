"""Messages that are signed, sent until somebody takes them, and sent by nobody to where they must not go."""

import json
import random
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from ehr.errors import RequestError
from model_store.repositories import DeliveryRepository, KeyRepository, WebhookRepository
from model_store.webhook_tables import WebhookDelivery
from runtime.pinned_http import UnsentError, _allowed_address, checked_url, is_public
from runtime.webhooks import JITTER, RETRY_SECONDS, WebhookSender, wait_after
from tests.api.front import Caller, Front
from tests.api.test_jobs import claim, end
from tests.api.test_problems import assert_problem

URL = "https://example.org/hook"


class Receiver(ThreadingHTTPServer):
    """Takes messages and answers with the statuses it was given, then with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.messages: list[tuple[dict[str, str], str]] = []
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?x=1"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.messages.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")  # must not be followed
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.shutdown()
    server.server_close()


def sender(front: Front, schedule: tuple[float, ...] = (0.0, 0.0)) -> WebhookSender:
    """The front's own has another opinion of private addresses; this one is called by hand."""
    return WebhookSender(front.services.database, private=True, look_seconds=1, schedule=schedule)


def add(caller: Caller, url: str = URL, **body: Any) -> dict[str, Any]:
    made: dict[str, Any] = caller.http.post("/webhooks", json={"url": url} | body).raise_for_status().json()
    return made


def pointed(caller: Caller, receiver: Receiver, **body: Any) -> dict[str, Any]:
    """A webhook whose address nobody could have asked for by HTTP."""
    made = add(caller, **body)
    with caller.front.services.database.session_scope() as session:
        WebhookRepository(session).get(caller.owner, made["id"]).url = receiver.url
    return made


def deliveries(caller: Caller, webhook: str, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = caller.http.get(f"/webhooks/{webhook}/deliveries", params=query).json()["items"]
    return found


def finished_job(caller: Caller, kind: str = "train") -> str:
    job = caller.job(kind, model_id="mdl_" + "0" * 32, name="x", n=1)
    end(caller.front, claim(caller.front, job))
    return job


@pytest.fixture(autouse=True)
def nobody_else_sends(open_front: Front) -> None:
    open_front.services.webhooks.stop()


def test_a_job_that_ends_is_told_signed_and_under_one_id(sqlite_caller: Caller, receiver: Receiver) -> None:
    caller, front = sqlite_caller, sqlite_caller.front
    made = pointed(caller, receiver, kinds=["train"])
    job = finished_job(caller)
    finished_job(caller, "generate")  # nobody asked for these
    receiver.statuses = [500, 302]
    for _ in range(3):
        assert sender(front).send_due() == 1
    assert sender(front).send_due() == 0
    assert len({headers["webhook-id"] for headers, _ in receiver.messages}) == 1 and len(receiver.messages) == 3
    for headers, body in receiver.messages:
        told = Verifier(made["secret"]).verify(body, headers)
        assert told["type"] == "job.succeeded" and told["data"] == {
            "job_id": job,
            "kind": "train",
            "state": "succeeded",
        }
        with pytest.raises(WebhookVerificationError):
            Verifier(made["secret"]).verify(body.replace("train", "other"), headers)
    listed = deliveries(caller, made["id"])
    assert [(each["state"], each["attempts"], each["status"]) for each in listed] == [("delivered", 3, 200)]
    assert listed[0]["body"] == receiver.messages[0][1]


def test_the_schedule_is_the_published_one_with_jitter() -> None:
    rng = random.Random(0)
    assert RETRY_SECONDS[:4] == (5, 300, 1800, 7200) and len(RETRY_SECONDS) == 9
    for attempt, seconds in enumerate(RETRY_SECONDS, 1):
        waits = {wait_after(attempt, rng) or 0 for _ in range(50)}
        assert len(waits) > 10 and all(abs(wait / seconds - 1) <= JITTER for wait in waits)
    assert wait_after(len(RETRY_SECONDS) + 1, rng) is None


def test_what_nobody_takes_is_given_up_and_can_be_replayed(sqlite_caller: Caller, receiver: Receiver) -> None:
    caller, front = sqlite_caller, sqlite_caller.front
    made = pointed(caller, receiver)
    finished_job(caller)
    receiver.statuses = [503] * 3
    for _ in range(3):
        sender(front).send_due()
    (failed,) = deliveries(caller, made["id"], state="failed")
    assert failed["attempts"] == 3 and failed["status"] == 503 and sender(front).send_due() == 0
    replay = f"/webhooks/{made['id']}/deliveries/{failed['id']}/replay"
    assert caller.http.post(replay).json()["state"] == "pending"
    assert_problem(caller.http.post(replay), 409, "conflict")
    assert sender(front).send_due() == 1
    assert {headers["webhook-id"] for headers, _ in receiver.messages} == {failed["id"]}


def test_gone_disables(sqlite_caller: Caller, receiver: Receiver) -> None:
    caller, front = sqlite_caller, sqlite_caller.front
    made = pointed(caller, receiver)
    finished_job(caller)
    receiver.statuses = [410]
    sender(front).send_due()
    assert "410" in caller.http.get(f"/webhooks/{made['id']}").json()["disabled"]
    finished_job(caller)
    assert len(deliveries(caller, made["id"])) == 1 and sender(front).send_due() == 0
    assert caller.http.post(f"/webhooks/{made['id']}/enable").json()["disabled"] is None
    assert caller.http.post(f"/webhooks/{made['id']}/test").status_code == 202
    assert sender(front).send_due() == 1
    assert json.loads(receiver.messages[-1][1])["type"] == "webhook.test"


def test_secrets_rotate(sqlite_caller: Caller, receiver: Receiver) -> None:
    caller = sqlite_caller
    made = pointed(caller, receiver)
    new = caller.http.post(f"/webhooks/{made['id']}/rotate").json()["secret"]
    finished_job(caller)
    sender(caller.front).send_due()
    headers, body = receiver.messages[0]
    for secret in (made["secret"], new):
        Verifier(secret).verify(body, headers)
    assert made["secret"] not in caller.http.get("/webhooks").text


def test_a_sender_that_dies_leaves_the_message_to_another(sqlite_caller: Caller, receiver: Receiver) -> None:
    caller, database = sqlite_caller, sqlite_caller.front.services.database
    pointed(caller, receiver)
    finished_job(caller)
    with database.session_scope() as session:
        taken = DeliveryRepository(session).take_due(lease_seconds=60)
    assert len(taken) == 1 and sender(caller.front).send_due() == 0  # somebody has it
    with database.session_scope() as session:
        session.get_one(WebhookDelivery, taken[0].id).due_at -= 61
    assert sender(caller.front).send_due() == 1
    assert receiver.messages[0][0]["webhook-id"] == taken[0].id


def test_who_may_hear_of_what(sqlite_caller: Caller, receiver: Receiver) -> None:
    caller, front = sqlite_caller, sqlite_caller.front
    analyst = front.as_owner(caller.owner, "generate", "read")
    assert add(analyst)["kinds"] == ["train", "generate", "export"]
    assert_problem(analyst.http.post("/webhooks", json={"url": URL, "kinds": ["evaluate"]}), 403, "forbidden")
    mine = pointed(caller, receiver)
    assert_problem(analyst.http.get(f"/webhooks/{mine['id']}/deliveries"), 403, "forbidden")
    stranger = front.as_owner("a stranger to webhooks")
    for path in (f"/webhooks/{mine['id']}", f"/webhooks/{mine['id']}/deliveries"):
        assert_problem(stranger.http.get(path), 404, "not-found")
    finished_job(caller)
    assert len(deliveries(caller, mine["id"])) == 1
    with front.services.database.session_scope() as session:
        keys = KeyRepository(session)
        keys.revoke(next(key.id for key in keys.all() if caller.key.startswith(key.prefix)))
    finished_job(caller)
    other = front.as_owner(caller.owner)
    assert len(deliveries(other, mine["id"])) == 1  # the key that asked for it is revoked
    assert other.http.delete(f"/webhooks/{mine['id']}").status_code == 204


@pytest.mark.parametrize(
    "url", ["http://example.org", "ftp://example.org", "https://", "https://a:b@c.org", "https://[::1", "https://x y"]
)
def test_addresses_that_are_refused_at_once(sqlite_caller: Caller, url: str) -> None:
    assert_problem(sqlite_caller.http.post("/webhooks", json={"url": url}), 422, "invalid-request")
    with pytest.raises(RequestError):
        checked_url(url, private=False)


def test_private_addresses_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = ["127.0.0.1", "10.0.0.8", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1"]
    inside += ["::1", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "64:ff9b::a00:8", "2002:7f00:1::"]
    assert [address for address in inside if is_public(address)] == []
    assert all(map(is_public, ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"]))
    found = [(0, 0, 0, "", (address, 443)) for address in ("10.0.0.8", "93.184.215.14")]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
    assert _allowed_address("rebound.example", 443, private=False) == "93.184.215.14"
    assert _allowed_address("rebound.example", 443, private=True) == "10.0.0.8"
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found[:1])
    with pytest.raises(UnsentError):
        _allowed_address("rebound.example", 443, private=False)
