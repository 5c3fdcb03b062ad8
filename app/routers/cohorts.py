"""Finished cohorts and their records."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from app.access import Identity, Maker, Reader, Services_
from app.library import Cursor, Limit, delete_row, listed
from app.schemas.answers import CohortAnswer, PageAnswer
from app.services import Services
from app.submissions import audit
from ehr.errors import NotFoundError
from ehr.formats import WRITERS, writer_named
from model_store.cohorts import cohort_source
from model_store.manifests import CohortManifest, DatasetManifest
from model_store.repositories import CohortRepository, DatasetRepository, WithholdingRepository
from model_store.tables import Cohort

router = APIRouter(tags=["cohorts"])


@router.get("/cohorts")
def list_cohorts(
    services: Services_, identity: Reader, cursor: Cursor = None, limit: Limit = 50
) -> PageAnswer[CohortAnswer]:
    """List finished cohorts, newest first."""
    return listed(services, CohortRepository, _answer, identity.owner, cursor, limit)


@router.get("/cohorts/{job_id}")
def get_cohort(job_id: str, services: Services_, identity: Reader) -> CohortAnswer:
    """Show a cohort's manifest: model, request, seed and versions, enough to make it again byte for byte."""
    return _answer(services.row(CohortRepository, identity.owner, job_id))


@router.get(
    "/cohorts/{job_id}/records",
    response_class=StreamingResponse,
    responses={
        200: {"content": {f.media_type.split(";")[0]: {} for f in WRITERS}, "description": "the records, streamed"}
    },
)
def download_cohort(
    job_id: str,
    services: Services_,
    identity: Reader,
    format: Annotated[str, Query(max_length=40, examples=[f.name for f in WRITERS])] = "long.csv",
) -> StreamingResponse:
    """Download a cohort's records in one of the formats of `docs/formats.md`. Every part is verified before it is sent.

    Ids are the same in all of them. Records have no dates: formats that need some have them synthesised.
    """
    wanted = writer_named(format)
    with services.database.session_scope() as session:
        WithholdingRepository(session).check(identity.owner, job_id)
        cohort = CohortRepository(session).get(identity.owner, job_id)
        audit(session, identity, "download cohort", job_id, format=wanted.name)
    manifest = CohortManifest.read(services.store, cohort.prefix, cohort.manifest_hash)
    for part in manifest.parts[:1]:  # headers of tables come before the records: a damaged cohort is refused now
        services.store.read(part.blob, part.sha256)
    headers = {"Content-Disposition": f'attachment; filename="{job_id}.{wanted.extension}"'}
    source = cohort_source(services.store, manifest, _dataset_manifest(services, identity, cohort))
    blocks = begun(wanted.write(source))
    return StreamingResponse(blocks, media_type=wanted.media_type, headers=headers)


@router.delete("/cohorts/{job_id}", status_code=204)
def delete_cohort(job_id: str, services: Services_, identity: Maker) -> None:
    """Delete a cohort and its files."""
    delete_row(services, identity, CohortRepository, job_id)


def _dataset_manifest(services: Services, identity: Identity, cohort: Cohort) -> DatasetManifest | None:
    """What is known of the codes from the cohort's dataset, if that is still there."""
    try:
        dataset = services.row(DatasetRepository, identity.owner, cohort.dataset_id)
    except NotFoundError:
        return None
    return DatasetManifest.read(services.store, dataset.prefix, dataset.manifest_hash)


def begun(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, with the first two made now: what is missing or damaged early is answered by a status."""
    first = list(islice(blocks, 2))
    return chain(first, blocks)


def _answer(row: Cohort) -> CohortAnswer:
    places = {writer.name: f"/cohorts/{row.job_id}/records?format={writer.name}" for writer in WRITERS}
    leaves_out = {writer.name: writer.leaves_out for writer in WRITERS if writer.leaves_out}
    return CohortAnswer.of(row, formats=places, leaves_out=leaves_out)
