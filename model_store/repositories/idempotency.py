"""One Idempotency-Key, one job: however often and however simultaneously the request comes."""

from sqlalchemy import delete
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from ehr.errors import IdempotencyConflictError, RequestError
from model_store.clock import now
from model_store.repositories.base import Repository
from model_store.tables import IdempotencyKeyRow

LONGEST_KEY = 255


class IdempotencyRepository(Repository):
    def find(self, owner: str, route: str, key: str, request_hash: str) -> str | None:
        """The id of the job that the key stands for, None if it is new. IdempotencyConflictError if the key came with
        another request."""
        row = self.session.get(IdempotencyKeyRow, (owner, route, key))
        if row is not None and row.request_hash != request_hash:
            raise IdempotencyConflictError("this Idempotency-Key was used with another request")
        return None if row is None else row.job_id

    def reserve(self, owner: str, route: str, key: str, request_hash: str, job_id: str) -> str | None:
        """None if the key is new: it stands for `job_id` from the end of this transaction on. Otherwise as `find`. Of
        simultaneous requests the database lets one through; the others wait for it here."""
        if not 1 <= len(key) <= LONGEST_KEY:
            raise RequestError(f"an Idempotency-Key has 1 to {LONGEST_KEY} characters")
        insert = postgresql_insert if self.session.get_bind().dialect.name == "postgresql" else sqlite_insert
        values = {"owner": owner, "route": route, "key": key, "request_hash": request_hash, "job_id": job_id}
        query = insert(IdempotencyKeyRow).values(created_at=now(), **values).on_conflict_do_nothing()
        new = self.session.scalar(query.returning(IdempotencyKeyRow.key)) is not None
        return None if new else self.find(owner, route, key, request_hash)

    def forget_older_than(self, seconds: float) -> None:
        self.session.execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < now() - seconds))
