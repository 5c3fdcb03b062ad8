"""Sessions: who logged in with which key."""

import hashlib
import hmac
import secrets

from sqlalchemy import delete, select

from ehr.errors import AccessError
from model_store.clock import now
from model_store.repositories.base import Repository
from model_store.tables import ApiKey, LoginSession

SESSION_SECONDS = 12 * 3600


class SessionRepository(Repository):
    """A token is 256 random bits, so a plain sha256 of it cannot be searched through. It opens what its key opens, and
    no longer than that: a revoked key ends its sessions."""

    def begin(self, key: ApiKey) -> str:
        """A new session of a key: the token, which is not kept anywhere. Sessions that have expired are forgotten."""
        self.session.execute(delete(LoginSession).where(LoginSession.expires_at < now()))
        token = secrets.token_urlsafe(32)
        self._insert(LoginSession(token_hash=_hash(token), key_id=key.id, expires_at=now() + SESSION_SECONDS))
        return token

    def key_of(self, token: str) -> ApiKey:
        """The key that the session was begun with, or AccessError."""
        mine = (LoginSession.token_hash == _hash(token), LoginSession.expires_at > now())
        query = select(ApiKey).join(LoginSession, LoginSession.key_id == ApiKey.id)
        key = self.session.scalar(query.where(*mine, ApiKey.revoked_at.is_(None)))
        if key is None:
            raise AccessError("the session has ended: log in again")
        return key

    def end(self, token: str) -> None:
        self.session.execute(delete(LoginSession).where(LoginSession.token_hash == _hash(token)))


def csrf_token(token: str) -> str:
    """What pages of a session send beside its cookie; nobody who does not know the cookie can make it."""
    return hmac.new(token.encode("utf-8", "surrogatepass"), b"csrf", hashlib.sha256).hexdigest()


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
