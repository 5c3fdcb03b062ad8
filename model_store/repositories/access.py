"""API keys."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence

from sqlalchemy import select, update

from ehr.errors import AccessError, NotFoundError, RequestError
from model_store.clock import now
from model_store.ids import KEY, checked_id, new_id
from model_store.repositories.base import Repository
from model_store.tables import ApiKey

SCOPES = ("data", "train", "generate", "read", "admin")
# Who a key is for. Whoever trains decides how patients are divided, so that goes with holding them.
ROLES: dict[str, tuple[str, ...]] = {
    "analyst": ("generate", "read"),
    "custodian": ("data", "train", "generate", "read"),
    "admin": ("admin",),
}
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
        row = self.session.scalar(select(ApiKey).where(ApiKey.prefix == secret[:PREFIX_LENGTH]))
        expected = row.key_hash if row is not None else _hash("")
        if not hmac.compare_digest(_hash(secret), expected) or row is None:
            raise AccessError("the API key is unknown or revoked")
        if row.revoked_at is not None:
            raise AccessError("the API key is unknown or revoked", row.owner, row.prefix)
        return row

    def any_ever(self) -> bool:
        """Whether there has ever been a key. Without one the service is open and binds to loopback only; once there was
        one it stays closed, also when the last has been revoked."""
        return self.session.scalar(select(ApiKey.id).limit(1)) is not None

    def any_active(self) -> bool:
        """Whether there is a key that opens anything."""
        return self.session.scalar(select(ApiKey.id).where(ApiKey.revoked_at.is_(None)).limit(1)) is not None

    def change_caps(self, key_id: str, caps: Mapping[str, int] | None) -> ApiKey:
        """These caps of exposure hold for this key instead of the settings'; None: the settings' again."""
        key = self._active(key_id)
        key.caps = None if caps is None else {**(key.caps or {}), **caps}
        self.session.flush()
        return key

    def names(self, owner: str) -> dict[str, str]:
        """What each key of an owner is for, by its prefix; revoked ones too."""
        query = select(ApiKey.prefix, ApiKey.name).where(ApiKey.owner == owner)
        return {str(prefix): str(name) for prefix, name in self.session.execute(query)}

    def all(self) -> list[ApiKey]:
        return list(self.session.scalars(select(ApiKey).order_by(ApiKey.created_at)))

    def revoke(self, key_id: str) -> ApiKey:
        """From now on the key opens nothing."""
        key = self._active(key_id)
        self.session.execute(update(ApiKey).where(ApiKey.id == key.id).values(revoked_at=now()))
        return key

    def _active(self, key_id: str) -> ApiKey:
        query = select(ApiKey).where(ApiKey.id == checked_id(key_id, KEY), ApiKey.revoked_at.is_(None))
        key = self.session.scalar(query.with_for_update())
        if key is None:
            raise NotFoundError("there is no active key with this id")
        return key


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
