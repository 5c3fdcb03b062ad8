"""Models that were trained elsewhere."""

from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError

from app.access import Identity
from app.schemas.requests import Request
from app.services import Services
from app.submissions import audit
from app.uploads import ABANDONED_SECONDS, Receiver, given_up_on_error
from ehr.errors import DataError, EhrError, RequestError
from ehr.fields import Name
from ehr.generators import spec_named
from model_store.bundle_import import ImportedBundle, opened_bundle
from model_store.ids import JOB, MODEL, new_id
from model_store.layout import model_folder, upload_blob
from model_store.repositories import DiscardRepository, ModelRepository
from model_store.tables import Model


class ImportForm(Request):
    """The fields beside the bundle."""

    name: Name | None = Field(None, description="shown in lists; the one it had if left out")
    manifest_hash: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="`manifest_hash` of the model where it was trained"
    )


IMPORT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "string",
                            "format": "binary",
                            "description": "as `GET /models/{id}/bundle` gives",
                        },
                        **ImportForm.model_json_schema()["properties"],
                    },
                }
            }
        },
    }
}


def import_bundle(services: Services, identity: Identity, receiver: Receiver) -> Model:
    """Store what was uploaded as a model of its own; nothing is left behind if it is none."""
    with given_up_on_error(receiver):
        form = _form(receiver)
        if len(receiver.upload.files) != 1:
            raise RequestError("send one bundle, as 'file'")
        blob = upload_blob(receiver.upload.files[0].upload_id)
        with (
            services.store.local_path(blob) as path,
            opened_bundle(path, services.settings.max_inflated_bytes) as bundle,
        ):
            if form.manifest_hash not in (None, bundle.manifest_hash):
                raise DataError(f"this is not the model that was meant: its manifest_hash is {bundle.manifest_hash}")
            row = _stored(services, identity, bundle, form.name)
    receiver.give_up()  # the upload has done its duty
    return row


def _form(receiver: Receiver) -> ImportForm:
    try:
        return ImportForm.model_validate(receiver.upload.fields)
    except ValidationError as error:
        raise RequestValidationError([e | {"loc": ("body", *e["loc"])} for e in error.errors()]) from None


def _stored(services: Services, identity: Identity, bundle: ImportedBundle, name: str | None) -> Model:
    """The files first, noted for removal until the row is there."""
    spec_named(bundle.generator)
    model_id = new_id(MODEL)
    _discard(services, model_id, ABANDONED_SECONDS)
    try:
        return _added(services, identity, bundle, name, model_id)
    except BaseException:
        _discard(services, model_id, 0)
        services.sweeper.wake()
        raise


def _discard(services: Services, model_id: str, wait_seconds: float) -> None:
    with services.database.session_scope() as session:
        discards = DiscardRepository(session)
        discards.forget(model_folder(model_id))
        discards.add(model_folder(model_id), wait_seconds=wait_seconds)


def _added(services: Services, identity: Identity, bundle: ImportedBundle, name: str | None, model_id: str) -> Model:
    folder = model_folder(model_id, 1)
    bundle.store(services.store, folder)
    row = Model(
        id=model_id,
        owner=identity.owner,
        name=name or bundle.row.get("name") or "imported model",
        job_id=new_id(JOB),  # of no job here
        dataset_id=bundle.manifest.dataset_id or "",
        generator=bundle.generator,
        prefix=folder,
        manifest_hash=bundle.manifest_hash,
        n_codes=len(bundle.manifest.vocabulary),
        details=bundle.details(),
    )
    _try_out(services, row)
    with services.database.session_scope() as session:
        DiscardRepository(session).forget(model_folder(model_id))
        models = ModelRepository(session)
        models.add(row)
        session.refresh(row)
        audit(session, identity, "import model", model_id, manifest_hash=bundle.manifest_hash)
    return row


def _try_out(services: Services, row: Model) -> None:
    """What requests for cohorts need of it must be there."""
    try:
        services.facts_of(row)
        services.reference_of(row)
    except EhrError:
        raise
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(f"the bundle's config is of no use here: {type(error).__name__}") from None
