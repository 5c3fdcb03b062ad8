"""How much has been had of a model, by key."""

from fastapi import APIRouter

from app.access import Identity, Reader, Services_
from app.exposure import caps_of
from app.schemas.access import ExposureAnswer
from app.services import Services
from model_store.repositories import ExposureRepository, KeyRepository, ModelRepository
from model_store.tables import Exposure

router = APIRouter(tags=["models"])


@router.get("/models/{model_id}/exposure")
def get_model_exposure(model_id: str, services: Services_, identity: Reader) -> list[ExposureAnswer]:
    """Show how much of a model each key has had: distinct conditions, conditions that hardly any patient satisfies, and
    records. With the scope `data` of all keys of the owner, otherwise of your own.

    Counted when a cohort is accepted. A key at its cap gets a `429`; `ehr-d3pm keys caps` raises it.
    """
    with services.database.read_scope() as session:
        ModelRepository(session).get(identity.owner, model_id)
        holder = None if identity.is_custodian else identity.holder
        found = ExposureRepository(session).of_model(identity.owner, model_id, holder)
        names = KeyRepository(session).names(identity.owner)
    return [_answer(services, identity, row, names.get(row.holder, "")) for row in found]


def _answer(services: Services, identity: Identity, row: Exposure, name: str) -> ExposureAnswer:
    caps = dict(caps_of(services.settings, identity)) if row.holder == identity.holder else None
    return ExposureAnswer.of(row, key=row.holder, name=name, caps=caps)
