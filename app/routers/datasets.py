"""Real records: upload, look, delete."""

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from app.access import DataOwner, Identity, Reader, Services_
from app.code_search import CodeSearchText, found_codes
from app.library import Cursor, Limit, MaybeNamed, delete_row, listed
from app.readers import code_answer, dataset_answer
from app.schemas.answers import (
    DatasetAnswer,
    JobAnswer,
    PageAnswer,
)
from app.schemas.codes import CodeAnswer, LabAnswer
from app.schemas.erasures import DependantsAnswer, ErasureAnswer
from app.schemas.requests import DatasetForm
from app.services import Services
from app.submissions import (
    NORMAL,
    IdempotencyKey,
    Priority,
    PriorityName,
    Submission,
    accepted,
    checked_payload,
    submit,
)
from app.uploads import MOST_FILES, Receiver, given_up_on_error, receive
from ehr.errors import NotFoundError
from model_store.ids import DATASET, checked_id, new_id
from model_store.manifests import DatasetManifest
from model_store.repositories import DatasetRepository, ErasureRepository
from model_store.tables import Job
from worker.contract import IngestPayload

router = APIRouter(tags=["datasets"])

Cascade = Annotated[bool, Query(description="also everything that was made from it")]
_FORM = DatasetForm.model_json_schema()
UPLOAD_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "array",
                            "maxItems": MOST_FILES,
                            "minItems": 1,
                            "items": {"type": "string", "format": "binary"},
                            "description": "The tables of one upload, or one zip of them: long or wide tables, MIMIC, "
                            "OMOP, claims, Synthea, FHIR or MEDS; docs/formats.md has the columns.",
                        },
                        **_FORM["properties"],
                    },
                }
            }
        },
    }
}


@router.post("/datasets", status_code=202, openapi_extra=UPLOAD_BODY)
async def create_dataset(
    request: Request,
    response: Response,
    services: Services_,
    identity: DataOwner,
    key: IdempotencyKey = None,
    priority: Priority = NORMAL,
) -> JobAnswer:
    """Upload records.

    The body is streamed to disk; an ingest job then reads, checks and encodes it, and its result names the dataset.
    """
    receiver = await receive(request, services)
    job, replayed = await anyio.to_thread.run_sync(_submit_upload, services, identity, key, priority, receiver)
    return accepted(identity, response, job, replayed)


@router.get("/datasets")
def list_datasets(
    services: Services_, identity: Reader, wanted: MaybeNamed, cursor: Cursor = None, limit: Limit = 50
) -> PageAnswer[DatasetAnswer]:
    """List datasets."""
    shown = partial(dataset_answer, identity)
    return listed(services, DatasetRepository, shown, identity.owner, cursor, limit, wanted)


@router.get("/datasets/{dataset_id}")
def get_dataset(dataset_id: str, services: Services_, identity: Reader) -> DatasetAnswer:
    """Summarise a dataset. What is counted in it needs the scope `data`; counts of 1 to 10 patients are not shown."""
    return dataset_answer(identity, services.row(DatasetRepository, identity.owner, dataset_id))


@router.get("/datasets/{dataset_id}/codes")
def list_dataset_codes(
    dataset_id: str,
    services: Services_,
    identity: Reader,
    search: CodeSearchText = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> PageAnswer[CodeAnswer]:
    """List the vocabulary: what each code means and, with the scope `data`, how many records have it."""
    known = services.codes_of(services.row(DatasetRepository, identity.owner, dataset_id))

    def answer(i: int, of: dict[str, Any]) -> CodeAnswer:
        return code_answer(identity, CodeAnswer(records=known.counts[i], **of))

    return found_codes(known.vocabulary, search, cursor, limit, answer)


@router.get("/datasets/{dataset_id}/labs")
def list_dataset_labs(dataset_id: str, services: Services_, identity: Reader) -> list[LabAnswer]:
    """List the labs that became deciles, with the nine values between the ten parts."""
    dataset = services.row(DatasetRepository, identity.owner, dataset_id)
    curves = DatasetManifest.read(services.store, dataset.prefix, dataset.manifest_hash).curves
    return [
        LabAnswer(code=code, cut_points=list(curve.cuts), unit=curve.unit.text or None if curve.unit else None)
        for code, curve in sorted(curves.items())
    ]


@router.get("/datasets/{dataset_id}/dependants")
def list_dataset_dependants(dataset_id: str, services: Services_, identity: DataOwner) -> DependantsAnswer:
    """List what was made from a dataset, and the jobs that work on it: what `DELETE ?cascade=true` would remove."""
    with services.database.read_scope() as session:
        return DependantsAnswer(**asdict(ErasureRepository(session).dependants(identity.owner, dataset_id)))


@router.delete(
    "/datasets/{dataset_id}",
    status_code=204,
    responses={200: {"model": ErasureAnswer, "description": "with `cascade`: what was removed and what remains"}},
)
def delete_dataset(dataset_id: str, services: Services_, identity: DataOwner, cascade: Cascade = False) -> Response:
    """Delete a dataset and its files. Models made from it stay, unless `cascade` is true: then everything made from it
    goes with it, jobs that work on any of it are cancelled, and the answer is a report of the erasure."""
    if not cascade:
        delete_row(services, identity, DatasetRepository, dataset_id)
        return Response(status_code=204)
    with services.database.session_scope() as session:
        ErasureRepository(session).erase(identity.owner, dataset_id, identity.key_prefix)
    services.sweeper.wake()
    return JSONResponse(_erasure(services, identity, dataset_id).model_dump(mode="json"))


@router.get("/datasets/{dataset_id}/erasure")
def get_dataset_erasure(dataset_id: str, services: Services_, identity: DataOwner) -> ErasureAnswer:
    """Show what was removed with a dataset that was deleted with `cascade`, when, what remains and why, and whether all
    its files are gone by now."""
    return _erasure(services, identity, dataset_id)


def _erasure(services: Services, identity: Identity, dataset_id: str) -> ErasureAnswer:
    with services.database.read_scope() as session:
        erasures = ErasureRepository(session)
        row = erasures.erased(identity.owner, checked_id(dataset_id, DATASET))
        if row is None:
            raise NotFoundError("no dataset with this id was erased")
        left = erasures.files_left(row.detail["removed"])
        return ErasureAnswer(dataset_id=dataset_id, erased_at=row.created_at, folders_left=left, **row.detail)


def _submit_upload(
    services: Services, identity: Identity, key: str | None, priority: PriorityName, receiver: Receiver
) -> tuple[Job, bool]:
    upload = receiver.upload
    with given_up_on_error(receiver):
        form = _form(upload.fields)
        labels = [file.label for file in upload.files]
        values = form.model_dump() | {"name": form.name or labels[0] or "dataset"}
        request = {"form": values, "files": upload.hashes, "labels": labels}
        submission = Submission(identity, "POST /datasets", key, request, priority=priority)
        payload = checked_payload(IngestPayload, dataset_id=new_id(DATASET), files=upload.files, **values)
        job, replayed = submit(services, submission, "ingest", payload, uploads=receiver.folders)
        if replayed:
            receiver.give_up()  # these bytes have been here before
    return job, replayed


def _form(fields: dict[str, str]) -> DatasetForm:
    try:
        return DatasetForm.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError([e | {"loc": ("body", *e["loc"])} for e in error.errors()]) from None
