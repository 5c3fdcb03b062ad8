"""Messages that are due. The row stays until the job is claimed, so a lost message is sent again."""

from dataclasses import dataclass

from sqlalchemy import func, select, update

from model_store.clock import now
from model_store.repositories.base import Repository
from model_store.tables import Job, Outbox

SEND_SECONDS = 10.0  # a sweeper that died while sending leaves the message to others after this long
LONGEST_WAIT_SECONDS = 600.0


@dataclass(frozen=True)
class Message:
    job_id: str
    task: str
    queue: str
    published: int  # how often it was sent before


class OutboxRepository(Repository):
    def take_due(self, limit: int = 200) -> list[Message]:
        """Messages to send now; other sweepers leave them alone for a while."""
        due = select(Outbox.job_id).where(Outbox.due_at <= now()).order_by(Outbox.due_at).limit(limit)
        rows = self.session.execute(
            update(Outbox)
            .where(Outbox.job_id.in_(due), Outbox.due_at <= now())
            .values(due_at=now() + SEND_SECONDS)
            .returning(Outbox.job_id, Outbox.task, Outbox.queue, Outbox.published)
        )
        return [Message(*row) for row in rows]

    def sent(self, messages: list[Message], republish_seconds: float) -> None:
        """They are with the broker. If nobody claims them they are due again, ever more slowly: the broker may have
        lost them, or the queue is merely long."""
        for published in {message.published for message in messages}:
            wait = min(republish_seconds * 2 ** min(published, 10), LONGEST_WAIT_SECONDS)
            ids = [message.job_id for message in messages if message.published == published]
            query = update(Outbox).where(Outbox.job_id.in_(ids))
            self.session.execute(query.values(due_at=now() + wait, published=Outbox.published + 1))

    def not_sent(self, messages: list[Message], wait_seconds: float) -> None:
        """The broker does not answer: they are due again soon."""
        query = update(Outbox).where(Outbox.job_id.in_([message.job_id for message in messages]))
        self.session.execute(query.values(due_at=now() + wait_seconds))

    def hurry(self, job_id: str) -> None:
        """Whoever got the message could not take the job: it is due again at once."""
        self.session.execute(update(Outbox).where(Outbox.job_id == job_id).values(due_at=now()))

    def hurry_one_of(self, owner: str) -> None:
        """A job of this owner may start again: the message of one is due at once."""
        mine = select(Outbox.job_id).join(Job, Job.id == Outbox.job_id).where(Job.owner == owner).limit(1)
        self.session.execute(update(Outbox).where(Outbox.job_id.in_(mine.scalar_subquery())).values(due_at=now()))

    def waiting(self) -> dict[str, tuple[int, float]]:
        """By queue, how many jobs wait for a worker, and for how many seconds the oldest has."""
        since = func.coalesce(func.max(now() - Outbox.queued_at), 0.0)
        query = select(Outbox.queue, func.count(), since).group_by(Outbox.queue)
        return {str(queue): (int(count), float(age)) for queue, count, age in self.session.execute(query)}
