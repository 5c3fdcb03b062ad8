"""Finished cohorts and their records."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from app.access import Identity, Maker, Reader, Services_
from app.byte_ranges import BINARY, RANGES, StoredBytes, is_download, ranged_response
from app.library import Cursor, Limit, Of, Unnamed, delete_row, listed
from app.readers import cohort_answer
from app.schemas.answers import CohortAnswer, PageAnswer
from app.services import Services
from app.submissions import audit
from ehr.errors import RequestError
from ehr.formats import WRITERS, writer_named
from ehr.formats.write.protocol import Writer
from model_store.cohorts import known_source
from model_store.manifests import CohortManifest
from model_store.repositories import CohortRepository, WithholdingRepository
from model_store.tables import Dataset

router = APIRouter(tags=["cohorts"])
# The names of the registry: a new writer needs no line here.
if TYPE_CHECKING:
    WriterName = str
else:
    WriterName = Literal[*(writer.name for writer in WRITERS)]
WithNames = Annotated[
    bool, Query(description="with what the codes are called, beside them; `docs/formats.md` says where that stands")
]
RECORDS: dict[int | str, dict[str, Any]] = {
    200: {"content": {f.media_type.split(";")[0]: BINARY for f in WRITERS}, "description": "the records"},
    **RANGES,
}


@router.get("/cohorts")
def list_cohorts(
    services: Services_,
    identity: Reader,
    wanted: Unnamed,
    model_id: Of = None,
    dataset_id: Of = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> PageAnswer[CohortAnswer]:
    """List finished cohorts."""
    shown, only = partial(cohort_answer, identity), {"model_id": model_id, "dataset_id": dataset_id}
    return listed(services, CohortRepository, shown, identity.owner, cursor, limit, wanted, **only)


@router.get("/cohorts/{job_id}")
def get_cohort(job_id: str, services: Services_, identity: Reader) -> CohortAnswer:
    """Show a cohort's manifest: model, request, seed and versions, enough to make it again byte for byte."""
    return cohort_answer(identity, services.row(CohortRepository, identity.owner, job_id))


@router.get("/cohorts/{job_id}/records", response_class=StreamingResponse, responses=RECORDS)
@router.head("/cohorts/{job_id}/records", include_in_schema=False)
def download_cohort(
    job_id: str,
    request: Request,
    services: Services_,
    identity: Reader,
    format: WriterName = "long.csv",
    names: WithNames = False,
) -> Response:
    """Download a cohort's records in one of the formats of `docs/formats.md`. Every part is verified before it is sent.

    Ids are the same in all of them. Histories have real order and days between visits, from a declared first day.
    Other records have no dates: formats that need some have them synthesised. Parquet and Feather have a
    `Content-Length`, an `ETag`, `HEAD` and `Range`; they are made when they are first asked for.
    """
    return _download(request, services, identity, job_id, writer_named(format), names)


@router.get("/cohorts/{job_id}/records.{format}", response_class=StreamingResponse, responses=RECORDS)
@router.head("/cohorts/{job_id}/records.{format}", include_in_schema=False)
def read_cohort_file(
    job_id: str,
    format: WriterName,
    request: Request,
    services: Services_,
    identity: Reader,
    names: WithNames = False,
) -> Response:
    """The same under an address that looks like a file, for readers that go by its end:
    `polars.scan_parquet("http://.../cohorts/job_.../records.parquet")`."""
    return _download(request, services, identity, job_id, writer_named(format), names)


@router.delete("/cohorts/{job_id}", status_code=204)
def delete_cohort(job_id: str, services: Services_, identity: Maker) -> None:
    """Delete a cohort and its files."""
    delete_row(services, identity, CohortRepository, job_id)


def _download(
    request: Request, services: Services, identity: Identity, job_id: str, wanted: Writer, names: bool
) -> Response:
    if names and not wanted.has_names:
        others = ", ".join(writer.name for writer in WRITERS if writer.has_names)
        raise RequestError(f"names: {wanted.name} has no place for names of codes; these have: {others}")
    with services.database.session_scope() as session:
        WithholdingRepository(session).check(identity.owner, job_id)
        cohort = CohortRepository(session).get(identity.owner, job_id)
        dataset = session.get(Dataset, cohort.dataset_id)
        if is_download(request, services, identity, wanted.by_ranges, job_id, wanted.name):
            audit(session, identity, "download cohort", job_id, format=wanted.name)
    manifest = CohortManifest.read(services.store, cohort.prefix, cohort.manifest_hash)
    if manifest.origin is not None and not wanted.has_time:
        others = ", ".join(writer.name for writer in WRITERS if writer.has_time)
        raise RequestError(f"format: {wanted.name} cannot tell visits over time; these can: {others}")
    source = replace(known_source(services.store, cohort, dataset, manifest), with_names=names)
    filename = f"{job_id}.{wanted.extension}"
    if wanted.by_ranges:
        name = f"{wanted.name}{'-names' if names else ''}"
        blob, sha256, size = services.forms.of(cohort, name, lambda: wanted.write(source))
        stored = StoredBytes(lambda: services.store.open(blob), size, sha256, wanted.media_type, filename)
        return ranged_response(request, stored)
    headers = {"Content-Disposition": f'attachment; filename="{filename}"', "Accept-Ranges": "none"}
    if request.method == "HEAD":
        return StreamingResponse(iter(()), 200, headers, wanted.media_type)  # how long it would be is not known
    for part in manifest.parts[:1]:  # headers of tables come before the records: a damaged cohort is refused now
        services.store.read(part.blob, part.sha256)
    return StreamingResponse(begun(wanted.write(source)), media_type=wanted.media_type, headers=headers)


def begun(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, with the first two made now: what is missing or damaged early is answered by a status."""
    first = list(islice(blocks, 2))
    return chain(first, blocks)
