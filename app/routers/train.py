"""Training."""

from fastapi import APIRouter, Response

from app.access import DATA, Services_, Trainer
from app.histories import has_histories
from app.schemas.answers import JobAnswer
from app.schemas.requests import TrainRequest
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
from ehr.errors import RequestError
from ehr.generators import DEFAULT_HISTORY_GENERATOR, history_generator_names, spec_named
from model_store.ids import MODEL, new_id
from model_store.repositories import DatasetRepository
from model_store.tables import Dataset
from worker.contract import TrainPayload

router = APIRouter(tags=["models"])


@router.post("/train", status_code=202)
def train_model(
    body: TrainRequest,
    response: Response,
    services: Services_,
    identity: Trainer,
    key: IdempotencyKey = None,
    priority: Priority = NORMAL,
) -> JobAnswer:
    """Train a model.

    The job's result names the model. A training that is interrupted goes on from its last checkpoint. `holdout_share`
    needs the scope `data`: two models whose shares differ by one patient would tell what that patient has.
    """
    submission = Submission(identity, "POST /train", key, body.model_dump(mode="json"), priority=priority)
    if (job := replayed_job(services, submission)) is not None:
        return accepted(identity, response, job, replayed=True)
    if body.holdout_share is not None:
        identity.require(DATA)
    dataset = services.row(DatasetRepository, identity.owner, body.dataset_id)
    generator = _generator(body, dataset)
    spec_named(generator).check(body.preset, body.settings)
    if body.max_minutes is not None:
        _check_time(body, generator)
    values = (
        body.model_dump() | {"generator": generator} | {"model_id": new_id(MODEL), "name": body.name or dataset.name}
    )
    payload = checked_payload(TrainPayload, **values)
    job, replayed = submit(services, submission, "train", payload, {DatasetRepository: dataset.id})
    return accepted(identity, response, job, replayed)


def _check_time(body: TrainRequest, generator: str) -> None:
    """RequestError if nothing is left to choose that would keep the training within a time."""
    if not spec_named(generator).follows_rule(body.preset):
        raise RequestError("max_minutes: only the preset 'auto' of 'd3pm' is made to fit into a time; leave it out")
    training = body.settings.get("training")
    if isinstance(training, dict) and "epochs" in training:
        raise RequestError("max_minutes: it decides about settings.training.epochs; leave one of the two out")


def _generator(body: TrainRequest, dataset: Dataset) -> str:
    """The generator that is asked for, if it can learn from such data; histories have a default of their own."""
    over_time = has_histories(dataset)
    if over_time and "generator" not in body.model_fields_set:
        return DEFAULT_HISTORY_GENERATOR
    if over_time != (body.generator in history_generator_names()):
        known = ", ".join(history_generator_names())
        what = f"has histories, which these learn: {known}" if over_time else "was not uploaded with unit=history"
        raise RequestError(f"generator: '{body.generator}' cannot learn from this dataset, which {what}")
    return body.generator
