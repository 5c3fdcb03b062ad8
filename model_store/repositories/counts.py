"""How jobs have fared since the database was made, for metrics. Counted in the transaction in which it happens."""

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from model_store.repositories.base import Repository
from model_store.tables import JobCount

# what is counted: claims, ends, and attempts that ended without one
WHATS = ("started", "succeeded", "failed", "cancelled", "poison", "given_back", "lease_lost")


class CountRepository(Repository):
    def add(self, kind: str, what: str, seconds: float = 0.0) -> None:
        """One of WHATS happened once more, to a job that ran for so long in this attempt."""
        insert = postgresql_insert if self.session.get_bind().dialect.name == "postgresql" else sqlite_insert
        query = insert(JobCount).values(kind=kind, what=what, times=1, seconds=seconds)
        more = {"times": JobCount.times + 1, "seconds": JobCount.seconds + seconds}
        self.session.execute(query.on_conflict_do_update(index_elements=["kind", "what"], set_=more))

    def all(self) -> list[JobCount]:
        return list(self.session.scalars(select(JobCount).order_by(JobCount.kind, JobCount.what)))
