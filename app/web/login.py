"""Logging in with an API key, and out."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from app.access import SESSION_COOKIE, Services_, authenticated, identify
from app.services import Services
from app.web.shell import page, page_router
from ehr.errors import AccessError, ScopeError
from model_store.repositories import AuditRepository, KeyRepository, SessionRepository
from model_store.repositories.sessions import SESSION_SECONDS, csrf_token

router = page_router()


@router.get("/login")
def show_login(request: Request, services: Services_, next: Annotated[str, Query(max_length=300)] = "/") -> Response:
    try:
        identify(request, services, None)
    except AccessError:
        return page(request, "login.html", None, {"next": next, "problem": None, "active": ""})
    return RedirectResponse(_inside(next), 303)


@router.post("/login")
def log_in(
    request: Request,
    services: Services_,
    key: Annotated[str, Form(max_length=200)] = "",
    next: Annotated[str, Form(max_length=300)] = "/",
) -> Response:
    """A session for the key; another page cannot make a browser log in here."""
    _check_origin(request)
    try:
        with services.database.session_scope() as session:
            row = authenticated(request, services.failed_logins, KeyRepository(session), key.strip())
            token = SessionRepository(session).begin(row)
            AuditRepository(session).record(row.owner, "log in", row.id, row.prefix)
    except AccessError as error:
        return page(request, "login.html", None, {"next": next, "problem": str(error), "active": ""}, 401)
    answer = RedirectResponse(_inside(next), 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(SESSION_COOKIE, token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/logout")
def log_out(request: Request, services: Services_, csrf: Annotated[str, Form(max_length=100)] = "") -> Response:
    token = request.cookies.get(SESSION_COOKIE)
    if token is not None and csrf == csrf_token(token):
        _end(services, token)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return answer


def _end(services: Services, token: str) -> None:
    with services.database.session_scope() as session:
        SessionRepository(session).end(token)


def _check_origin(request: Request) -> None:
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise ScopeError("log in on a page of this service")


def _inside(address: str) -> str:
    """The address if it is a page of ours: a link must not lead elsewhere by way of logging in."""
    return address if address.startswith("/") and not address.startswith(("//", "/\\")) else "/"
