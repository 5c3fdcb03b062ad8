"""Trained models."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import IO

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from app.access import Admin, Reader, Services_, Trainer
from app.byte_ranges import ANY_BYTES, BINARY
from app.code_search import CodeSearchText, found_codes
from app.imports import IMPORT_BODY, import_bundle
from app.library import Cursor, Limit, MaybeNamed, Of, Tagged, delete_row, listed
from app.readers import model_answer
from app.schemas.answers import ModelAnswer, PageAnswer
from app.schemas.codes import ModelCodeAnswer
from app.schemas.names import GeneratorName
from app.schemas.requests import ModelChanges
from app.submissions import audit
from app.uploads import receive
from model_store.bundles import zip_bundle
from model_store.repositories import ModelRepository

router = APIRouter(tags=["models"])
BLOCK = 1 << 20


@router.get("/models")
def list_models(
    services: Services_,
    identity: Reader,
    wanted: MaybeNamed,
    dataset_id: Of = None,
    generator: GeneratorName | None = None,
    tag: Tagged = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> PageAnswer[ModelAnswer]:
    """List models."""
    shown, only = partial(model_answer, identity), {"dataset_id": dataset_id, "generator": generator}
    wanted = replace(wanted, tag=tag)
    return listed(services, ModelRepository, shown, identity.owner, cursor, limit, wanted, **only)


@router.post("/models/import", status_code=201, openapi_extra=IMPORT_BODY)
async def import_model(request: Request, services: Services_, identity: Admin) -> ModelAnswer:
    """Import a bundle that this or another instance gave out, as one multipart file. Every byte is verified.

    The model is yours under a new id, with the audit and the reference cohort it was exported with, and what its report
    said. Its data is not here: what is known of the model decides whether its cohorts may leave. `manifest_hash`, as
    the other instance shows it, makes sure that it is the model that was meant. Needs the scope `admin`: whoever makes
    a bundle writes its audit.
    """
    receiver = await receive(request, services)
    row = await anyio.to_thread.run_sync(import_bundle, services, identity, receiver)
    return model_answer(identity, row)


@router.get("/models/{model_id}")
def get_model(model_id: str, services: Services_, identity: Reader) -> ModelAnswer:
    """Describe a model: settings, verdicts and, with the scope `data`, its seed, hashes, training curve and audit."""
    return model_answer(identity, services.row(ModelRepository, identity.owner, model_id))


@router.get("/models/{model_id}/codes")
def list_model_codes(
    model_id: str,
    services: Services_,
    identity: Reader,
    search: CodeSearchText = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> PageAnswer[ModelCodeAnswer]:
    """List the codes that conditions and targets can ask for, and what each means. The model's data may be gone."""
    known = services.facts_of(services.row(ModelRepository, identity.owner, model_id))
    return found_codes(known.vocabulary, search, cursor, limit, lambda _, of: ModelCodeAnswer(**of))


@router.get(
    "/models/{model_id}/bundle",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"application/zip": BINARY, **ANY_BYTES},
            "description": "weights.safetensors and manifest.json",
        }
    },
)
def download_model_bundle(model_id: str, services: Services_, identity: Admin) -> StreamingResponse:
    """Download a model: one zip with `weights.safetensors` and `manifest.json`, verified byte by byte.

    Needs the scope `admin`: whoever has the weights makes cohorts that no report judges.
    """
    with services.database.session_scope() as session:
        model = ModelRepository(session).get(identity.owner, model_id)
        audit(session, identity, "download model", model_id)
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _blocks when the answer is out
    try:
        row = {"name": model.name, "report": model.details.get("report")}
        zip_bundle(services.store, model.prefix, model.manifest_hash, file, row)
    except BaseException:
        file.close()
        raise
    headers = {
        "Content-Disposition": f'attachment; filename="{model.id}.zip"',
        "Content-Length": str(file.tell()),
    }
    file.seek(0)
    return StreamingResponse(_blocks(file), media_type="application/zip", headers=headers)


@router.patch("/models/{model_id}")
def describe_model(model_id: str, body: ModelChanges, services: Services_, identity: Trainer) -> ModelAnswer:
    """Rename a model, and change its tags and notes (`details.tags`, `details.notes`), which everyone reads who may see
    the model."""
    with services.database.session_scope() as session:
        words = body.model_dump()
        model = ModelRepository(session).describe(identity.owner, model_id, words.pop("name"), **words)
        audit(session, identity, "describe model", model_id)
        return model_answer(identity, model)


@router.delete("/models/{model_id}", status_code=204)
def delete_model(model_id: str, services: Services_, identity: Trainer) -> None:
    """Delete a model and its files. Cohorts made from it stay."""
    delete_row(services, identity, ModelRepository, model_id)


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while block := file.read(BLOCK):
            yield block
