"""Whose job is next. Workers do not take the job that a message names but the one whose owner would have had the least
when it ends.

Served time is counted in virtual seconds: seconds divided by the owner's weight (fair queueing, Demers et al. 1989).
`began` is the virtual time at which an owner's last job started, `used` the one up to which it has been served, `turn`
what jobs of the owner usually take. A guess that is wrong changes an order, never a share: what was taken is counted.
An owner who comes back after a while starts where the others are now: nobody saves up more than a turn.
"""

from typing import Any

from sqlalchemy import ColumnElement, Select, Subquery, and_, func, or_, select, update

from model_store.clock import now
from model_store.repositories.base import Repository
from model_store.repositories.leases import Claim, LeaseRepository
from model_store.repositories.outbox import OutboxRepository
from model_store.repositories.owners import LIVE, OwnerRepository
from model_store.tables import Job, Outbox, Owner

ROOM_SECONDS = 30.0  # for so long nobody else makes room for the same job
MOST_TRIES = 5


class TurnRepository(Repository):
    def claim_next(
        self, queues: list[str], worker: str, lease_seconds: float, most_running: int, named: str | None = None
    ) -> Claim | None:
        """Take the job whose turn it is, of those whose messages are or were due, and the one that a message has just
        `named`; None if there is none to take. An owner with `most_running` jobs, or as many as they may have,
        waits."""
        for _ in range(MOST_TRIES):
            row = self.session.execute(self._waiting(queues, most_running, named)).first()
            if row is None:
                return None
            # of two workers that take jobs of one owner at the same moment, the second finds the first one's running
            owner = OwnerRepository(self.session).locked(row.owner)
            if self._running(row.owner) >= (most_running if owner.running_jobs is None else owner.running_jobs):
                continue
            claim = LeaseRepository(self.session).claim(row.id, worker, lease_seconds)
            if claim is not None:
                self._start(owner)
                return claim
        return None

    def makes_way(self, claim: Claim, queues: list[str], most_running: int, patience_seconds: float) -> bool:
        """Whether a running job is to give its place to one that has waited for so long and is more entitled to it: a
        more urgent one of its owner, or one of somebody who runs less and has had less. Only one job makes way for
        each that waits."""
        mine = self.session.get(Owner, claim.owner)
        if mine is None:
            return False
        started = select(Job.started_at).where(Job.id == claim.job_id).scalar_subquery()
        had = mine.used + (now() - started) / mine.weight
        entitled = or_(
            and_(Job.owner == claim.owner, Job.priority > claim.priority),
            and_(
                Job.owner != claim.owner,
                self._load < self._running(claim.owner) / mine.weight,
                func.coalesce(Owner.used, 0.0) < had,
            ),
        )
        waits = and_(
            or_(Outbox.queued_at.is_(None), Outbox.queued_at <= now() - patience_seconds),
            or_(Outbox.room_until.is_(None), Outbox.room_until < now()),
        )
        row = self.session.execute(self._waiting(queues, most_running).where(entitled, waits)).first()
        if row is None:
            return False
        self.session.execute(update(Outbox).where(Outbox.job_id == row.id).values(room_until=now() + ROOM_SECONDS))
        return True

    def next_of(self, owner: str, most_running: int) -> None:
        """A job of the owner has ended. If they had as many running as they may, messages of others found nothing to
        claim: one is sent again."""
        row = self.session.get(Owner, owner)
        most = most_running if row is None or row.running_jobs is None else row.running_jobs
        if self._running(owner) == most - 1:
            OutboxRepository(self.session).hurry_one_of(owner)

    # --- the order ---

    _live: Subquery = (
        select(Job.owner, func.count().label("running")).where(Job.state.in_(LIVE)).group_by(Job.owner).subquery()
    )
    _jobs: ColumnElement[int] = func.coalesce(_live.c.running, 0)
    _load: ColumnElement[Any] = _jobs / func.coalesce(Owner.weight, 1.0)
    _end: ColumnElement[Any] = func.coalesce(Owner.used, 0.0) + func.coalesce(Owner.turn, 0.0)

    def _waiting(self, queues: list[str], most_running: int, named: str | None = None) -> Select[str, str]:
        """The job that is next, locked; others may be taken by others meanwhile."""
        return (
            select(Job.id, Job.owner)
            .join(Outbox, Outbox.job_id == Job.id)
            .outerjoin(self._live, self._live.c.owner == Job.owner)
            .outerjoin(Owner, Owner.owner == Job.owner)
            .where(
                Job.state == "queued",
                Outbox.queue.in_(queues),
                or_(Outbox.published > 0, Outbox.due_at <= now(), Job.id == named),
                self._jobs < func.coalesce(Owner.running_jobs, most_running),
            )
            .order_by(self._load, self._end, Job.priority.desc(), Job.created_at, Job.id)
            .limit(1)
            .with_for_update(of=Job, skip_locked=True)
        )

    def _running(self, owner: str) -> int:
        query = select(func.count()).select_from(Job).where(Job.state.in_(LIVE), Job.owner == owner)
        return self.session.scalars(query).one()

    def _start(self, owner: Owner) -> None:
        latest = self.session.scalars(select(func.coalesce(func.max(Owner.began), 0.0))).one()
        # who waited with long jobs while short ones went before has not been away, and is behind by a turn at most
        owner.began = owner.used = max(owner.used, latest - (owner.turn or 0.0))
        self.session.flush()
