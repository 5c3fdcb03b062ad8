"""Data sets: upload, profile, codes."""

from typing import Annotated, get_args

from fastapi import Query, Request
from fastapi.responses import Response

from app.access import Reader, Services_
from app.code_search import CodeSearchText
from app.library import Cursor
from app.routers.datasets import get_dataset, list_dataset_codes, list_dataset_labs
from app.routers.references import list_places
from app.web import lists
from app.web.shell import page, page_router
from worker.contract import FormatName, RollupName

router = page_router()
CODES = 25  # on a page


@router.get("/app/data")
def show_datasets(request: Request, services: Services_, identity: Reader, cursor: Cursor = None) -> Response:
    datasets = lists.datasets(services, identity, 25, cursor)
    reading = lists.jobs(services, identity, 10, kind="ingest").items if identity.may("data") else []
    formats, rollups = get_args(FormatName), get_args(RollupName)
    live = [job for job in reading if job.state != "succeeded"]
    sources = list_places(services, identity).sources
    by_kind = {kind: [place for place in sources if place.kind == kind] for kind in ("objects", "postgres", "fhir")}
    shown = {"datasets": datasets, "reading": live, "formats": formats, "rollups": rollups, "sources": by_kind}
    return page(request, "data.html", identity, {"active": "data", **shown})


@router.get("/app/data/{dataset_id}")
def show_dataset(
    request: Request, dataset_id: str, services: Services_, identity: Reader, search: CodeSearchText = None
) -> Response:
    dataset = get_dataset(dataset_id, services, identity)
    labs = list_dataset_labs(dataset_id, services, identity)
    codes = list_dataset_codes(dataset_id, services, identity, search or None, limit=CODES)
    shown = {"dataset": dataset, "labs": labs, "codes": codes, "search": search or ""}
    return page(request, "dataset.html", identity, {"active": "data", **shown})


@router.get("/app/data/{dataset_id}/codes")
def show_codes(
    request: Request,
    dataset_id: str,
    services: Services_,
    identity: Reader,
    search: CodeSearchText = None,
    cursor: Annotated[str | None, Query(max_length=20)] = None,
) -> Response:
    """A piece of the page: the codes that a search finds."""
    dataset = get_dataset(dataset_id, services, identity)
    codes = list_dataset_codes(dataset_id, services, identity, search or None, cursor, limit=CODES)
    shown = {"dataset": dataset, "codes": codes, "search": search or ""}
    return page(request, "codes.html", identity, shown)
