"""API keys and the audit trail."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import insert, select, update

from ehr.errors import AccessError, NotFoundError, RequestError
from model_store.clock import now
from model_store.ids import KEY, checked_id, new_id
from model_store.repositories.base import Repository
from model_store.tables import ApiKey, Audit

SCOPES = ("data", "train", "generate", "read", "admin")
PREFIX_LENGTH = 12


class KeyRepository(Repository):
    """A key is `ehr_` and 256 random bits, so a plain sha256 of it cannot be searched through."""

    def create(self, owner: str, name: str, scopes: Sequence[str]) -> tuple[ApiKey, str]:
        """The row and the secret; the secret is not kept anywhere."""
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise RequestError(f"unknown scopes {unknown}; known: {', '.join(SCOPES)}")
        secret = f"ehr_{secrets.token_urlsafe(32)}"
        row = ApiKey(
            id=new_id(KEY),
            owner=owner,
            name=name,
            prefix=secret[:PREFIX_LENGTH],
            key_hash=_hash(secret),
            scopes=sorted(set(scopes)),
        )
        self._insert(row)
        return row, secret

    def authenticate(self, secret: str) -> ApiKey:
        """The row of a valid key, or AccessError."""
        query = select(ApiKey).where(ApiKey.prefix == secret[:PREFIX_LENGTH], ApiKey.revoked_at.is_(None))
        row = self.session.scalar(query)
        expected = row.key_hash if row is not None else _hash("")
        if not hmac.compare_digest(_hash(secret), expected) or row is None:
            raise AccessError("the API key is unknown or revoked")
        return row

    def any_active(self) -> bool:
        """Whether keys are configured at all; with none the service is open and binds to loopback only."""
        return self.session.scalar(select(ApiKey.id).where(ApiKey.revoked_at.is_(None)).limit(1)) is not None

    def all(self) -> list[ApiKey]:
        return list(self.session.scalars(select(ApiKey).order_by(ApiKey.created_at)))

    def revoke(self, key_id: str) -> None:
        """From now on the key opens nothing."""
        query = update(ApiKey).where(ApiKey.id == checked_id(key_id, KEY), ApiKey.revoked_at.is_(None))
        if self.session.scalar(query.values(revoked_at=now()).returning(ApiKey.id)) is None:
            raise NotFoundError("there is no active key with this id")


class AuditRepository(Repository):
    def record(
        self, owner: str, action: str, target: str, key_prefix: str | None = None, detail: dict[str, Any] | None = None
    ) -> None:
        """Note a submission, a download or a deletion. `detail` must not contain codes or record ids."""
        values = {"owner": owner, "action": action, "target": target, "key_prefix": key_prefix, "detail": detail or {}}
        self.session.execute(insert(Audit).values(**values))

    def newest(self, owner: str, limit: int = 100) -> list[Audit]:
        query = select(Audit).where(Audit.owner == owner).order_by(Audit.id.desc()).limit(limit)
        return list(self.session.scalars(query))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
