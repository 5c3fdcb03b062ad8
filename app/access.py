"""Who asks, and what they may do.

While there has never been a key the service is open, but only to requests that reach it through loopback under a
loopback name: anything else could be another machine, or a web page in the user's browser.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import Scope

from app.failed_logins import FailedLogins
from app.services import Services
from ehr.errors import AccessError, ScopeError
from model_store.repositories import KeyRepository, SessionRepository
from model_store.repositories.access import SCOPES
from model_store.repositories.sessions import csrf_token
from model_store.tables import ApiKey
from runtime.binding import is_loopback

OPEN_OWNER = "local"
ADMIN, DATA = "admin", "data"
SESSION_COOKIE = "ehr_session"
CSRF_HEADER = "X-CSRF-Token"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_bearer = HTTPBearer(auto_error=False, description="An API key made by `ehr-d3pm keys create`.")


@dataclass(frozen=True)
class Identity:
    """The owner of whatever the request makes or sees."""

    owner: str
    scopes: frozenset[str]
    key_prefix: str | None  # None: the service is open
    caps: Mapping[str, int | None] | None = None  # of exposure, where the key has its own

    @property
    def is_custodian(self) -> bool:
        """Whether they hold the real records, and so may see what is computed from them."""
        return bool(self.scopes & {DATA, ADMIN})

    @property
    def holder(self) -> str:
        """Who is counted when a model is used."""
        return self.key_prefix or OPEN_OWNER

    def may(self, scope: str) -> bool:
        """Whether the key has the scope; `admin` has all."""
        return bool(self.scopes & {scope, ADMIN})

    def require(self, scope: str) -> None:
        """ScopeError unless the key has the scope."""
        if not self.may(scope):
            raise ScopeError(f"this needs a key with the scope '{scope}'")


# Dependencies that wait for nothing are coroutines: a plain function would cost a hop to another thread.
async def services_of(request: Request) -> Services:
    """The services of the application that serves the request."""
    services: Services = request.app.state.services
    return services


def identify(
    request: Request,
    services: Annotated[Services, Depends(services_of)],
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Identity:
    """The owner of the key that came with the request, or that the browser's session was begun with."""
    with services.database.read_scope() as session:
        keys = KeyRepository(session)
        if credentials is not None:
            key = authenticated(request, services.failed_logins, keys, credentials.credentials)
            return _known(request, _identity(key))
        # a cookie of another service on this machine means nothing where there are no keys
        if (token := request.cookies.get(SESSION_COOKIE)) is not None and keys.any_ever():
            key = SessionRepository(session).key_of(token)
            _check_csrf(request, token)
            return _known(request, _identity(key))
        if keys.any_active():
            raise AccessError("send an API key: 'Authorization: Bearer ehr_...'")
        if keys.any_ever():
            raise AccessError(
                "every API key is revoked; the service stays closed until one is made: ehr-d3pm keys create"
            )
    if not _came_through_loopback(request):
        raise AccessError("without API keys the service answers on loopback only; make one: ehr-d3pm keys create")
    return _known(request, Identity(OPEN_OWNER, frozenset(SCOPES), None))


def _identity(key: ApiKey) -> Identity:
    return Identity(key.owner, frozenset(key.scopes), key.prefix, key.caps)


def _check_csrf(request: Request, token: str) -> None:
    """A browser sends cookies with what other pages make it send; only our own pages know the token beside it."""
    sent = request.headers.get(CSRF_HEADER, "")
    if request.method not in SAFE_METHODS and not hmac.compare_digest(csrf_token(token).encode(), sent.encode()):
        raise AccessError(f"send the session's {CSRF_HEADER}, or an API key instead of a session")


def authenticated(request: Request, failed_logins: FailedLogins, keys: KeyRepository, secret: str) -> ApiKey:
    """The key of that secret, or AccessError; TooManyFailuresError for an address that tries out many."""
    address = "" if request.client is None else request.client.host
    failed_logins.check(address, secret)
    try:
        key = keys.authenticate(secret)
        failed_logins.worked(secret)
        return key
    except AccessError as error:
        failed_logins.failed(address)
        request.state.sender = (error.owner, error.key_prefix)  # somebody has a key that should be nobody's
        raise


def _known(request: Request, identity: Identity) -> Identity:
    """The identity, which refusals of this request name from now on."""
    request.state.identity = identity
    request.state.sender = (identity.owner, identity.key_prefix)
    return identity


def sender_of(scope: Scope) -> tuple[str | None, str | None]:
    """(owner, prefix of the key) of whoever sent a request, as far as that is known."""
    sender: tuple[str | None, str | None] = scope.get("state", {}).get("sender", (None, None))
    return sender


def needs(scope: str) -> Callable[..., Awaitable[Identity]]:
    """A dependency: the caller's identity, if it has the scope."""

    async def checked(identity: Annotated[Identity, Depends(identify)]) -> Identity:
        identity.require(scope)
        return identity

    return checked


def _came_through_loopback(request: Request) -> bool:
    server = request.scope.get("server")  # the address the connection was made to, or a unix socket's path
    local = server is None or server[1] is None or is_loopback(str(server[0]))
    # A page elsewhere can make a browser call loopback: its origin, or a name that was made to point here, shows it.
    origin = request.headers.get("origin")
    from_here = origin is None or is_loopback(_host_of(origin))
    return local and from_here and is_loopback(_host_of(f"//{request.headers.get('host', '')}"))


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


Services_ = Annotated[Services, Depends(services_of)]
Anyone = Annotated[Identity, Depends(identify)]
Reader = Annotated[Identity, Depends(needs("read"))]
DataOwner = Annotated[Identity, Depends(needs(DATA))]
Trainer = Annotated[Identity, Depends(needs("train"))]
Maker = Annotated[Identity, Depends(needs("generate"))]
Admin = Annotated[Identity, Depends(needs(ADMIN))]
