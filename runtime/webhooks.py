"""Sends what is to be sent to webhooks, as the Standard Webhooks specification has it (standardwebhooks.com).

A message is a row until somebody has taken it: a sender that is killed leaves it to another, under the same id.
"""

import hashlib
import hmac
import logging
import random
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy.exc import SQLAlchemyError

from model_store.database import Database
from model_store.repositories import DeliveryRepository
from model_store.repositories.webhooks import SECRET_PREFIX, Due
from runtime.pinned_http import TIMEOUT_SECONDS, UnsentError, post

log = logging.getLogger(__name__)
MINUTE, HOUR = 60, 3600
# The schedule that the specification publishes: the waits after the first attempt, the second, and so on.
RETRY_SECONDS = (5, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR)
JITTER = 0.2  # of each wait, more or less: what failed together is not sent again together
LEASE_SECONDS = 4 * TIMEOUT_SECONDS
AT_A_TIME = 8
STOP_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
GONE = 410


def signature(secrets: Sequence[str], message_id: str, timestamp: int, body: str) -> str:
    """`v1,...` for each secret, with blanks between them."""
    content = f"{message_id}.{timestamp}.{body}".encode()
    keys = (b64decode(secret.removeprefix(SECRET_PREFIX)) for secret in secrets)
    return " ".join(f"v1,{b64encode(hmac.digest(key, content, hashlib.sha256)).decode()}" for key in keys)


def wait_after(attempts: int, rng: random.Random, schedule: Sequence[float] = RETRY_SECONDS) -> float | None:
    """How long to wait after so many attempts that failed; None: that was the last."""
    if attempts > len(schedule):
        return None
    return schedule[attempts - 1] * rng.uniform(1 - JITTER, 1 + JITTER)


class WebhookSender:
    """A thread that looks for what is due, and some that send it. `private`: also to addresses that are not public."""

    def __init__(
        self, database: Database, private: bool, look_seconds: float, schedule: Sequence[float] = RETRY_SECONDS
    ) -> None:
        self._database, self._private, self._look_seconds, self._schedule = database, private, look_seconds, schedule
        self._rng = random.Random()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=STOP_SECONDS)  # what is under way is sent again by whoever comes next

    def send_due(self) -> int:
        """Send what is due now; returns how much that was."""
        with self._database.read_scope() as session:
            if not DeliveryRepository(session).has_due():
                return 0
        with self._database.session_scope() as session:
            due = DeliveryRepository(session).take_due(LEASE_SECONDS)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(self._send, due))
        return len(due)

    def _send(self, due: Due) -> None:
        if self._stopping.is_set():  # what has not begun is left to others: each may take as long as an address likes
            return
        status, error = None, "not taken"
        try:
            timestamp = int(time.time())
            headers = {
                "Content-Type": "application/json",
                "User-Agent": "ehr-d3pm",
                "webhook-id": due.id,
                "webhook-timestamp": str(timestamp),
                "webhook-signature": signature(due.secrets, due.id, timestamp, due.body),
            }
            status = post(due.url, due.body.encode(), headers, self._private)
        except UnsentError as unsent:
            error = str(unsent)
        try:
            with self._database.session_scope() as session:
                self._note(DeliveryRepository(session), due, status, error)
        except SQLAlchemyError as problem:  # it is sent again, under its id
            log.warning("a delivery could not be noted", extra={"reason": type(problem).__name__})

    def _note(self, deliveries: DeliveryRepository, due: Due, status: int | None, error: str) -> None:
        if status is not None and 200 <= status < 300:
            deliveries.delivered(due, status)
        elif status == GONE:
            deliveries.refused(due, status, "gone", None)
            deliveries.disable(due, "the address answered that it is gone (410)")
        else:
            deliveries.refused(due, status, error, wait_after(due.attempts + 1, self._rng, self._schedule))

    def _run(self) -> None:
        pause = self._look_seconds
        while not self._stopping.is_set():
            try:
                sent = self.send_due()
                pause = self._look_seconds
                if sent:
                    continue
            except Exception as error:  # a database that is away comes back; the thread must be there then
                log.warning("webhooks wait", extra={"reason": type(error).__name__})
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            self._stopping.wait(pause)
