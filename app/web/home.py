"""The first page: where to start, and what is there."""

from typing import Any

from fastapi import Request
from fastapi.responses import Response

from app.access import Anyone, Services_
from app.web import lists
from app.web.shell import page, page_router

router = page_router()
NEWEST = 3


@router.get("/")
def show_home(request: Request, services: Services_, identity: Anyone) -> Response:
    shown: dict[str, Any] = {"active": "home", "datasets": [], "models": [], "cohorts": []}
    if identity.may("read"):
        shown["datasets"] = lists.datasets(services, identity, NEWEST).items
        shown["models"] = lists.models(services, identity, NEWEST).items
        shown["cohorts"] = lists.cohorts(services, identity, NEWEST).items
    shown["jobs"] = lists.jobs(services, identity, NEWEST).items
    return page(request, "home.html", identity, shown)
