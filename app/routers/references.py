"""Records that lie elsewhere: a dataset of them, and where they may lie."""

from typing import Any

from fastapi import APIRouter, Response

from app.access import DataOwner, Identity, Reader, Services_
from app.schemas.answers import JobAnswer
from app.schemas.places import PlaceAnswer, PlacesAnswer
from app.schemas.requests import ReferenceRequest
from app.submissions import (
    NORMAL,
    IdempotencyKey,
    Priority,
    Submission,
    accepted,
    checked_payload,
    replayed_job,
    submit,
)
from ehr.references import FhirExport, Objects, Source
from model_store.ids import DATASET, UPLOAD, new_id
from runtime.places import Places, database_place, fhir_place, object_place
from worker.contract import IngestPayload

router = APIRouter(tags=["datasets"])


@router.post("/datasets/by-reference", status_code=202)
def create_dataset_by_reference(
    body: ReferenceRequest,
    response: Response,
    services: Services_,
    identity: DataOwner,
    key: IdempotencyKey = None,
    priority: Priority = NORMAL,
) -> JobAnswer:
    """Make a dataset of records that lie elsewhere: objects at `s3://` or `https://` addresses, an OMOP CDM in
    Postgres, or what a FHIR server exports. `GET /places` lists where that may be.

    The ingest job fetches them, bounded like an upload, and then reads them as it would read an upload.
    """
    asked = body.model_dump(mode="json")
    submission = Submission(identity, "POST /datasets/by-reference", key, asked, priority=priority)
    if (job := replayed_job(services, submission)) is not None:
        return accepted(identity, response, job, replayed=True)
    check_source(services.settings.source_places, identity.owner, body.source)
    values = {name: getattr(body, name) for name in type(body).model_fields} | {"name": body.name or body.source.called}
    payload = checked_payload(IngestPayload, dataset_id=new_id(DATASET), fetch_id=new_id(UPLOAD), **values)
    return accepted(identity, response, *submit(services, submission, "ingest", payload))


@router.get("/places")
def list_places(services: Services_, identity: Reader) -> PlacesAnswer:
    """List where records may be fetched from (with the scope `data`) and where cohorts may be written to."""
    settings = services.settings
    sources = _shown(settings.source_places, identity) if identity.is_custodian else []
    return PlacesAnswer(sources=sources, sinks=_shown(settings.sink_places, identity))


def check_source(places: Places, owner: str, source: Source) -> None:
    """RequestError if the owner may not read there; the worker looks again before it does."""
    if isinstance(source, Objects):
        for number, url in enumerate(source.urls):
            object_place(places, owner, url, f"source.urls.{number}")
    elif isinstance(source, FhirExport):
        fhir_place(places, owner, source.server)
    else:
        database_place(places, owner, source.connection, source.schemas)


def _shown(places: Places, identity: Identity) -> list[PlaceAnswer]:
    """Without connection strings and keys."""
    return [_answer(place) for place in places if place.is_for(identity.owner)]


def _answer(place: Any) -> PlaceAnswer:
    url = None if place.kind == "postgres" else place.url
    schemas = getattr(place, "schemas", None)
    return PlaceAnswer(kind=place.kind, name=getattr(place, "name", None), url=url, schemas=schemas)
