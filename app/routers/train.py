"""Training."""

from fastapi import APIRouter, Response

from app.access import DATA, Services_, Trainer
from app.schemas.answers import JobAnswer
from app.schemas.requests import TrainRequest
from app.submissions import IdempotencyKey, Submission, accepted, checked_payload, replayed_job, submit
from ehr.errors import RequestError
from ehr.generators import generator_spec
from model_store.ids import MODEL, new_id
from model_store.repositories import DatasetRepository
from worker.contract import TrainPayload

router = APIRouter(tags=["models"])


@router.post("/train", status_code=202)
def train_model(
    body: TrainRequest, response: Response, services: Services_, identity: Trainer, key: IdempotencyKey = None
) -> JobAnswer:
    """Train a model.

    The job's result names the model. A training that is interrupted goes on from its last checkpoint. `holdout_share`
    needs the scope `data`: two models whose shares differ by one patient would tell what that patient has.
    """
    submission = Submission(identity, "POST /train", key, body.model_dump(mode="json"))
    if (job := replayed_job(services, submission)) is not None:
        return accepted(identity, response, job, replayed=True)
    if body.holdout_share is not None:
        identity.require(DATA)
    generator_spec(body.generator).check(body.preset, body.settings)
    dataset = services.row(DatasetRepository, identity.owner, body.dataset_id)
    if (dataset.summary.get("format") or {}).get("unit") == "history":
        raise RequestError("dataset_id: this dataset has histories (unit=history), which no generator can learn yet")
    values = body.model_dump() | {"model_id": new_id(MODEL), "name": body.name or dataset.name}
    payload = checked_payload(TrainPayload, **values)
    job, replayed = submit(services, submission, "train", payload, {DatasetRepository: dataset.id})
    return accepted(identity, response, job, replayed)
