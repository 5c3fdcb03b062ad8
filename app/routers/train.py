"""Training."""

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from app.access import Services_, Trainer
from app.schemas.answers import JobAnswer
from app.schemas.requests import TrainRequest
from app.submissions import Deed, IdempotencyKey, accepted, payload, submit
from ehr.generators import generator_spec
from model_store.ids import MODEL, new_id
from model_store.repositories import DatasetRepository
from worker.contract import Payload, TrainPayload

router = APIRouter(tags=["models"])


@router.post("/train", status_code=202)
def train_model(
    body: TrainRequest, response: Response, services: Services_, identity: Trainer, key: IdempotencyKey = None
) -> JobAnswer:
    """Train a model.

    The job's result names the model. A training that is interrupted goes on from its last checkpoint.
    """
    generator_spec(body.generator).check(body.preset, body.settings)

    def payload_of(session: Session) -> Payload:
        dataset = DatasetRepository(session).get(identity.owner, body.dataset_id)
        values = body.model_dump() | {"model_id": new_id(MODEL), "name": body.name or dataset.name}
        return payload(TrainPayload, **values)

    deed = Deed(identity, "POST /train", key, body.model_dump(mode="json"))
    return accepted(response, *submit(services, deed, "train", payload_of))
