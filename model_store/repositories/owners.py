"""What owners may use at a time, and how much they have used."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from ehr.errors import QuotaError
from model_store.limits import Limits
from model_store.repositories.base import Repository
from model_store.tables import Cohort, Dataset, Job, Model, Outbox, Owner

LIVE = ("running", "cancelling")
REFUSED = ("queued_jobs", "queued_records", "stored_bytes")  # what a submission can be too much of


class OwnerRepository(Repository):
    def locked(self, owner: str) -> Owner:
        """The owner's row, made if there is none; whoever else wants it waits for the end of this transaction."""
        insert = postgresql_insert if self.session.get_bind().dialect.name == "postgresql" else sqlite_insert
        values = {"owner": owner, "weight": 1.0, "began": 0.0, "used": 0.0}
        self.session.execute(insert(Owner).values(**values).on_conflict_do_nothing())
        query = select(Owner).where(Owner.owner == owner).with_for_update()
        return self.session.scalars(query.execution_options(populate_existing=True)).one()

    def admit(self, owner: str, general: Limits, records: int = 0, size: int = 0) -> None:
        """QuotaError if one more job, of so many records and uploaded bytes, would pass a limit of its owner. To be
        called in the transaction that submits: of two that come together the second finds the first one counted.

        Only who uploads is measured by all that is stored: how many bytes real records take, down to the last patient,
        is nothing that a request for a cohort may tell, so that one is measured by cohorts alone."""
        self.locked(owner)
        for name, (used, most) in self.budgets(owner, general, cohorts_alone=size == 0, kinds=None).items():
            more = {"queued_jobs": 1, "queued_records": records, "stored_bytes": size}[name]
            if used + more > most:
                raise QuotaError(name, most, used, more)

    def budgets(
        self, owner: str, general: Limits, cohorts_alone: bool, kinds: Collection[str] | None
    ) -> dict[str, tuple[int, int]]:
        """(what the owner has at the moment, the most they may have) of everything beyond which they are refused.
        `kinds`: of the jobs that whoever asks may know of; None: of all."""
        row, used = self.session.get(Owner, owner), self.usage(owner, kinds)
        if cohorts_alone:
            used["stored_bytes"] = self._stored_bytes(owner, (Cohort,))
        own: dict[str, int | None] = {name: getattr(row, name, None) for name in REFUSED}
        most = {name: getattr(general, name) if limit is None else limit for name, limit in own.items()}
        return {name: (used[name], most[name]) for name in REFUSED}

    def check_room(self, owner: str, general: Limits, size: int) -> None:
        """QuotaError if the owner may not store so many bytes more."""
        row, used = self.locked(owner), self._stored_bytes(owner)
        most = general.stored_bytes if row.stored_bytes is None else row.stored_bytes
        if used + size > most:
            raise QuotaError("stored_bytes", most, used, size)

    def usage(self, owner: str, kinds: Collection[str] | None = None) -> dict[str, int]:
        """What the owner has at the moment, of everything that is limited; of jobs, those of these kinds."""
        unfinished = [job for job in self._unfinished(owner) if kinds is None or job[1] in kinds]
        return {
            "queued_jobs": sum(state == "queued" for state, _, _ in unfinished),
            "running_jobs": sum(state != "queued" for state, _, _ in unfinished),
            "queued_records": sum(int(payload["n"]) for _, kind, payload in unfinished if kind == "generate"),
            "stored_bytes": self._stored_bytes(owner)
            + sum(
                int(file["size"]) for _, kind, payload in unfinished if kind == "ingest" for file in payload["files"]
            ),
        }

    def change(self, owner: str, weight: float | None, limits: Mapping[str, int | None]) -> Owner:
        """Give an owner another weight (None: leave it), and limits of their own (None: the settings')."""
        row = self.locked(owner)
        if weight is not None:
            row.weight = weight
        for name, most in limits.items():
            setattr(row, name, most)
        self.session.flush()
        return row

    def charge(self, owner: str, seconds: float) -> None:
        """A worker has been at work for an owner for so long."""
        turn = max(seconds, 0.0) / Owner.weight
        values = {"used": Owner.used + turn, "turn": (func.coalesce(Owner.turn, turn) + turn) / 2}
        self.session.execute(update(Owner).where(Owner.owner == owner).values(**values))

    def all(self) -> list[Owner]:
        return list(self.session.scalars(select(Owner).order_by(Owner.owner)))

    def _unfinished(self, owner: str) -> list[tuple[str, str, dict[str, Any]]]:
        """State, kind and payload of the jobs that wait or run. Found where there are few, whatever the history."""
        mine = select(Job.state, Job.kind, Job.payload).where(Job.owner == owner)
        queued = mine.join(Outbox, Outbox.job_id == Job.id).where(Job.state == "queued")
        queries = (queued, mine.where(Job.state.in_(LIVE)))
        return [(row.state, row.kind, row.payload) for query in queries for row in self.session.execute(query)]

    def _stored_bytes(self, owner: str, tables: tuple[Any, ...] = (Dataset, Model, Cohort)) -> int:
        sums = [select(func.sum(table.bytes)).where(table.owner == owner) for table in tables]
        return sum(int(self.session.scalar(query) or 0) for query in sums)
