"""One Idempotency-Key, one deed: however often and however simultaneously the request comes."""

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from ehr.errors import IdempotencyConflictError, RequestError
from model_store.clock import now
from model_store.repositories.base import Repository
from model_store.tables import IdempotencyKeyRow

LONGEST_KEY = 255


class IdempotencyRepository(Repository):
    def reserve(self, owner: str, route: str, key: str, request_hash: str) -> IdempotencyKeyRow | None:
        """None if the key is new: do the deed and `remember` its outcome in this same transaction. Otherwise the row
        with the earlier outcome. Of simultaneous requests the database lets one through; the others wait for it here.
        """
        if not 1 <= len(key) <= LONGEST_KEY:
            raise RequestError(f"an Idempotency-Key has 1 to {LONGEST_KEY} characters")
        insert = postgresql_insert if self.session.get_bind().dialect.name == "postgresql" else sqlite_insert
        new = self.session.scalar(
            insert(IdempotencyKeyRow)
            .values(owner=owner, route=route, key=key, request_hash=request_hash, created_at=now())
            .on_conflict_do_nothing()
            .returning(IdempotencyKeyRow.key)
        )
        if new is not None:
            return None
        row = self.session.scalars(
            select(IdempotencyKeyRow).where(
                IdempotencyKeyRow.owner == owner, IdempotencyKeyRow.route == route, IdempotencyKeyRow.key == key
            )
        ).one()
        if row.request_hash != request_hash:
            raise IdempotencyConflictError("this Idempotency-Key was used with another request")
        return row

    def remember(
        self,
        owner: str,
        route: str,
        key: str,
        job_id: str | None = None,
        status: int | None = None,
        body: str | None = None,
    ) -> None:
        """The outcome of the deed: the job it made, or the answer word for word."""
        self.session.execute(
            update(IdempotencyKeyRow)
            .where(IdempotencyKeyRow.owner == owner, IdempotencyKeyRow.route == route, IdempotencyKeyRow.key == key)
            .values(job_id=job_id, status=status, body=body)
        )

    def forget_older_than(self, seconds: float) -> None:
        self.session.execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < now() - seconds))
