"""What every page of the application has: its frame, its policy, and what is shown when something is refused."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from app.access import SESSION_COOKIE, Identity
from app.openapi import VERSION
from app.pages import environment
from app.problems import detail_for, row_for
from app.web import words
from app.web.assets import address_of
from ehr.errors import AccessError, EhrError, ScopeError
from model_store.repositories.sessions import csrf_token

# Nothing but our own files, no script or style inside of a page, and no other page around it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
SECTIONS = (
    ("data", "Data", "/app/data"),
    ("models", "Models", "/app/models"),
    ("cohorts", "Cohorts", "/app/cohorts"),
    ("jobs", "Jobs", "/app/jobs"),
    ("reports", "Reports", "/app/reports"),
    ("access", "Access", "/app/access"),
    ("reference", "API", "/docs"),
)

environment.filters |= words.FILTERS
environment.globals |= {"asset": address_of, "sections": SECTIONS, "version": VERSION}


def page(
    request: Request, template: str, identity: Identity | None, shown: Mapping[str, Any], status: int = 200
) -> HTMLResponse:
    """A page, or a piece of one: what is in `templates/app`."""
    # of a session that someone has begun; an open service has none
    token = None if identity is None or identity.key_prefix is None else request.cookies.get(SESSION_COOKIE)
    shared = {"identity": identity, "csrf": "" if token is None else csrf_token(token)}
    text = environment.get_template(f"app/{template}").render(**shared, **shown)
    return HTMLResponse(text, status, HEADERS)


class PageRoute(APIRoute):
    """Refusals are pages too, and who is not known is asked to log in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except EhrError as error:
                if isinstance(error, AccessError) and not isinstance(error, ScopeError):
                    if request.method == "GET":
                        return RedirectResponse(f"/login?next={quote(request.url.path)}", 303)
                    raise
                row = row_for(error)
                return _refusal(request, row.status, row.title, detail_for(request, error))
            except RequestValidationError:
                return _refusal(request, 422, "The address cannot be read", "Something in it is not as it should be.")
            except HTTPException as error:
                return _refusal(request, error.status_code, "The request was refused", str(error.detail))

        return handled


def _refusal(request: Request, status: int, title: str, detail: str) -> HTMLResponse:
    identity = getattr(request.state, "identity", None)
    return page(request, "refusal.html", identity, {"title": title, "detail": detail, "active": ""}, status)


def page_router() -> APIRouter:
    """Of pages: they are no part of the API's document."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)
