"""The thread that makes up for what was lost: unsent messages, silent workers, files nobody needs any more.

It runs in API and worker processes, never as a queued task: it must work exactly when the queue does not.
"""

import logging
import threading
import time
from collections.abc import Mapping

from ehr.errors import StoreError
from model_store.blobs import BlobStore
from model_store.database import Database
from model_store.repositories import (
    DeliveryRepository,
    DiscardRepository,
    IdempotencyRepository,
    LeaseRepository,
    OutboxRepository,
    RetentionRepository,
)
from runtime.broker import Broker, BrokerError
from runtime.settings import Settings

log = logging.getLogger(__name__)
RETENTION_SECONDS = 600.0  # between looks for what is old
KEY_SECONDS = 7 * 86_400  # Idempotency-Keys are for retries of a request, not for ever


class Sweeper:
    """`wake()` after a submission: the message is sent at once, and no request waits for the broker."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        store: BlobStore,
        routes: Mapping[str, tuple[str, str]],
        settings: Settings,
    ) -> None:
        """`routes` gives the (task, queue) of each kind of job: worker.contract.ROUTES."""
        self.database, self.broker, self.store, self.settings = database, broker, store, settings
        self.routes = dict(routes)
        self._awake, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._retains_at = time.monotonic()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to send."""
        self._awake.set()

    def stop(self) -> None:
        self._stopping.set()
        self._awake.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def sweep(self) -> None:
        """One round of everything. A step that fails does not keep the others from running."""
        for step in (self.expire_leases, self.publish, self.discard, self.retain):
            try:
                step()
            except Exception as error:  # a database that is away comes back; the thread must be there then
                log.warning("a sweep failed", extra={"step": step.__name__, "reason": type(error).__name__})

    def expire_leases(self) -> None:
        with self.database.session_scope() as session:
            expired = LeaseRepository(session).expire(self.routes, retry_seconds=self.settings.retry_seconds)
        for job in expired:
            log.warning("lease expired", extra={"job_id": job.job_id, "state": job.state})

    def publish(self) -> None:
        """Send what is due. The rows are marked before and after: a crash in between sends a message twice, never
        not at all."""
        while True:
            with self.database.session_scope() as session:
                due = OutboxRepository(session).take_due()
            if not due:
                return
            sent = 0
            try:
                for message in due:
                    self.broker.send(message.task, message.queue, message.job_id)
                    sent += 1
            except BrokerError as error:
                log.warning("messages wait for the broker", extra={"waiting": len(due) - sent, "reason": str(error)})
            with self.database.session_scope() as session:
                outbox = OutboxRepository(session)
                outbox.sent(due[:sent], self.settings.republish_seconds)
                outbox.not_sent(due[sent:], self.settings.sweep_seconds)
            if sent < len(due):
                return

    def discard(self) -> None:
        carry_out_discards(self.database, self.store)

    def retain(self) -> None:
        """Now and then, remove what is older than the settings have it kept; a little at a time, until nothing is."""
        if time.monotonic() < self._retains_at:
            return
        settings = self.settings
        removed = 0
        for days, forget in (
            (settings.retain_events_days, RetentionRepository.forget_events),
            (settings.retain_jobs_days, RetentionRepository.forget_jobs),
            (settings.retain_cohorts_days, RetentionRepository.forget_cohorts),
        ):
            if days > 0:
                with self.database.session_scope() as session:
                    removed += forget(RetentionRepository(session), days * 86_400)
        with self.database.session_scope() as session:
            IdempotencyRepository(session).forget_older_than(KEY_SECONDS)
            DeliveryRepository(session).forget_old()
        if removed == 0:
            self._retains_at = time.monotonic() + RETENTION_SECONDS
        else:
            log.info("removed what is no longer kept", extra={"rows": removed})

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.sweep()
            self._awake.wait(self.settings.sweep_seconds)
            self._awake.clear()


def carry_out_discards(database: Database, store: BlobStore) -> None:
    """Remove the files whose removal was decided and is due."""
    with database.session_scope() as session:
        due = DiscardRepository(session).take_due()
    for discard in due:
        try:
            store.delete_folder(discard.prefix, discard.keep)
        except (StoreError, OSError) as error:
            log.warning("files could not be removed", extra={"prefix": discard.prefix, "reason": str(error)})
            continue  # due again later
        with database.session_scope() as session:
            DiscardRepository(session).done(discard.id)
