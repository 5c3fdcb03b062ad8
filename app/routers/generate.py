"""Generation of cohorts."""

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from app.access import Maker, Services_
from app.schemas.answers import JobAnswer
from app.schemas.requests import METHODS_OF, GenerateRequest
from app.services import Services
from app.submissions import Deed, IdempotencyKey, accepted, payload, submit
from model_store.errors import RequestError
from model_store.repositories import ModelRepository
from model_store.tables import Model
from worker.contract import GeneratePayload, Payload

router = APIRouter(tags=["cohorts"])


@router.post("/generate", status_code=202)
def generate_cohort(
    body: GenerateRequest, response: Response, services: Services_, identity: Maker, key: IdempotencyKey = None
) -> JobAnswer:
    """Generate a cohort.

    Codes and wildcards are checked against the model's vocabulary at once. The cohort's id is the job's id.
    """

    def payload_of(session: Session) -> Payload:
        model = ModelRepository(session).get(identity.owner, body.model_id)
        check_request(services, model, body)
        values = body.model_dump() | {"conditions": body.conditions.as_contract()}
        return payload(GeneratePayload, **values)

    deed = Deed(identity, "POST /generate", key, body.model_dump(mode="json"))
    return accepted(response, *submit(services, deed, "generate", payload_of))


def check_request(services: Services, model: Model, body: GenerateRequest) -> None:
    """RequestError if the model cannot do what is asked."""
    if body.n > services.settings.max_records:
        raise RequestError(f"n: a cohort has at most {services.settings.max_records:,} records")
    methods = METHODS_OF.get(model.generator, ("auto",))
    if body.method not in methods:
        known = ", ".join(f"'{name}'" for name in methods)
        raise RequestError(f"method: a '{model.generator}' model does not offer '{body.method}'; known: {known}")
    conditions = body.conditions.as_contract()
    if not conditions.is_empty:
        services.vocabulary_of(model).resolve(conditions.all_of, conditions.any_of, conditions.none_of)
