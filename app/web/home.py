"""The first page: where to start, and what is there."""

from typing import Any

from fastapi import Request
from fastapi.responses import Response

from app.access import Anyone, Services_
from app.routers.cohorts import list_cohorts
from app.routers.datasets import list_datasets
from app.routers.jobs import list_jobs
from app.routers.models import list_models
from app.web.shell import page, page_router

router = page_router()
NEWEST = 3


@router.get("/")
def show_home(request: Request, services: Services_, identity: Anyone) -> Response:
    shown: dict[str, Any] = {"active": "home", "datasets": [], "models": [], "cohorts": []}
    if identity.may("read"):
        shown["datasets"] = list_datasets(services, identity, limit=NEWEST).items
        shown["models"] = list_models(services, identity, limit=NEWEST).items
        shown["cohorts"] = list_cohorts(services, identity, limit=NEWEST).items
    shown["jobs"] = list_jobs(services, identity, limit=NEWEST).items
    return page(request, "home.html", identity, shown)
