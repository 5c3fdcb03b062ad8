"""Messages to a receiver that fails a third of the time, while their sender is killed twice."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from standardwebhooks.webhooks import Webhook as Verifier

from benchmarks._harness import Figures, progress_bar
from model_store import migrate
from model_store.database import Database
from model_store.repositories import DeliveryRepository, WebhookRepository

OWNER = "benchmark"
FAILING_SHARE = 1 / 3
LONGEST_SECONDS = 600
# the schedule is in seconds instead of hours, and a lease is short: what is counted is not how long it takes
SENDER = """
import sys
from model_store.database import Database
from runtime import webhooks
webhooks.LEASE_SECONDS = 2.0
sender = webhooks.WebhookSender(Database(sys.argv[1]), True, 0.1, schedule=(0.1,) * 40)
sender.start()
sender._thread.join()
"""


class Receiver(ThreadingHTTPServer):
    """Answers 500 to a third of what comes; what it takes is verified and kept."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.secret = ""
        self.accepted: Counter[str] = Counter()
        self.bodies: defaultdict[str, set[str]] = defaultdict(set)
        self.unverified = 0
        self.lock, self.rng = threading.Lock(), random.Random(0)

    def take(self, headers: dict[str, str], body: str) -> int:
        try:
            Verifier(self.secret).verify(body, headers)
        except Exception:
            with self.lock:
                self.unverified += 1
            return 400
        with self.lock:
            if self.rng.random() < FAILING_SHARE:
                return 500
            self.accepted[headers["webhook-id"]] += 1
            self.bodies[headers["webhook-id"]].add(body)
        return 200


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.send_response(self.server.take({name.lower(): value for name, value in self.headers.items()}, body))
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


def webhooks(figures: Figures, quick: bool) -> None:
    n = 60 if quick else 1000
    with tempfile.TemporaryDirectory() as folder, Receiver() as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        url = f"sqlite:///{Path(folder) / 'webhooks.sqlite'}"
        migrate.upgrade(url)
        database = Database(url)
        _prepare(database, receiver, n)
        kills = _send(url, receiver, n)
        receiver.shutdown()
        database.close()
    events: Counter[str] = Counter(
        json.loads(body)["data"]["job_id"] for each in receiver.bodies.values() for body in each
    )
    figures.add("webhooks.messages", n, "")
    figures.add("webhooks.kills", kills, "")
    figures.add("webhooks.lost", n - len(receiver.accepted), "")
    # an event under two ids, or an id with two bodies, could not be told from another event
    figures.add("webhooks.duplicated", sum(count - 1 for count in events.values()), "")
    figures.add("webhooks.repeated", sum(count - 1 for count in receiver.accepted.values()), "under their own id")
    figures.add("webhooks.unverified", receiver.unverified, "")


def _prepare(database: Database, receiver: Receiver, n: int) -> None:
    with database.session_scope() as session:
        address = f"http://127.0.0.1:{receiver.server_address[1]}/"
        hook = WebhookRepository(session).create(OWNER, None, "benchmark", address, ["generate"])
        receiver.secret = hook.secrets[0]["secret"]
        for number in range(n):
            told = {"job_id": f"job_{number:032x}", "kind": "generate", "state": "succeeded"}
            DeliveryRepository(session).add(hook.id, OWNER, "job.succeeded", told)


def _send(url: str, receiver: Receiver, n: int) -> int:
    """Until all are taken, or for some minutes; kills the sender at a third and at two thirds, in mid-flight."""
    kills, deadline = 0, time.monotonic() + LONGEST_SECONDS
    process = _started(url)
    try:
        with progress_bar("messages") as show:
            while len(receiver.accepted) < n and time.monotonic() < deadline:
                show(len(receiver.accepted), n)
                if kills < 2 and len(receiver.accepted) >= (kills + 1) * n / 3:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    process, kills = _started(url), kills + 1
                time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    return kills


def _started(url: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", SENDER, url], env=environment)
