"""What is to be removed from the store: decided in a transaction, carried out afterwards, as often as it takes."""

from sqlalchemy import delete, insert, select, update

from ehr.errors import ConflictError
from model_store import layout
from model_store.clock import now
from model_store.repositories.base import Repository
from model_store.tables import Discard, Job

RETRY_SECONDS = 30
# how long uploads, checkpoints and finished parts of a job that can be tried again wait for someone to do so
RETRY_WINDOW_SECONDS = 7 * 86_400


class DiscardRepository(Repository):
    def add(self, prefix: str, keep: list[str] | None = None, wait_seconds: float = 0) -> None:
        """Have everything under `prefix` removed, except what lies under `keep`. With a wait it is a safety net:
        note an upload before it is written, and `forget` the note in the transaction that takes the upload over."""
        self.session.execute(insert(Discard).values(prefix=prefix, keep=keep or [], due_at=now() + wait_seconds))

    def forget(self, prefix: str) -> None:
        """Take back a removal that has not been carried out."""
        self.session.execute(delete(Discard).where(Discard.prefix == prefix))

    def add_for_job(self, job: Job, keep: list[str] | None = None, retry_seconds: float = RETRY_WINDOW_SECONDS) -> None:
        """Have whatever a finished job left behind removed, except `keep`; what a retry would use goes later."""
        for prefix in layout.folders_of_job(job.kind, job.payload):
            self.add(prefix, keep)
        wait = retry_seconds if layout.can_be_retried(job.kind, job.state) else 0
        for prefix in layout.retry_folders_of_job(job.kind, job.id, job.payload):
            self.add(prefix, keep, wait_seconds=wait)

    def forget_job(self, job: Job) -> None:
        """A job is tried again: what it had done so far is wanted after all, and a removal that is still to be carried
        out would take what the new attempt writes. Its end has everything removed that it did not keep. ConflictError
        if it cannot do without what it had, and that is gone."""
        had = layout.retry_folders_of_job(job.kind, job.id, job.payload)
        for prefix in had:
            noted = self.session.scalar(select(Discard.id).where(Discard.prefix == prefix).limit(1))
            if noted is None and layout.needs_what_it_had(job.kind, job.payload):
                raise ConflictError("what was uploaded is not kept any more: upload it again")
        for prefix in (*layout.folders_of_job(job.kind, job.payload), *had):
            self.forget(prefix)

    def take_due(self, limit: int = 50) -> list[Discard]:
        """Removals to carry out now; another sweeper gets them again only after a while."""
        due = select(Discard.id).where(Discard.due_at <= now()).order_by(Discard.due_at).limit(limit)
        query = update(Discard).where(Discard.id.in_(due), Discard.due_at <= now())
        return list(self.session.scalars(query.values(due_at=now() + RETRY_SECONDS).returning(Discard)))

    def done(self, discard_id: int) -> None:
        """The blobs are gone."""
        self.session.execute(delete(Discard).where(Discard.id == discard_id))
