"""Generation of cohorts, and what one would take."""

from contextlib import suppress

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from app.access import ADMIN, Identity, Maker, Services_
from app.estimates import expectation, parallel_parts, parts_of
from app.feasibility import Judgement, check_limits, judge
from app.schemas.answers import EstimateAnswer, JobAnswer, SupportAnswer
from app.schemas.requests import GenerateRequest
from app.services import Services
from app.submissions import Deed, IdempotencyKey, accepted, payload, submit
from ehr.disclosure import rounded
from ehr.errors import EhrError
from model_store.repositories import ModelRepository
from model_store.tables import Model
from runtime.broker import BrokerError, WorkerFacts
from worker.contract import GeneratePayload, Payload

router = APIRouter(tags=["cohorts"])


@router.post("/generate", status_code=202)
def generate_cohort(
    body: GenerateRequest, response: Response, services: Services_, identity: Maker, key: IdempotencyKey = None
) -> JobAnswer:
    """Generate a cohort.

    Codes and wildcards are checked against the model's vocabulary at once: what is impossible is a 422 with the nearest
    condition that is not, in `relaxation`; what no training record satisfies is accepted, with a warning in `warnings`.
    The cohort's id is the job's id. `evaluate: false` needs the scope `admin`: no report will withhold such a cohort.
    """
    if not body.evaluate:
        identity.require(ADMIN)
    # A large dataset takes a second to read, and a database may allow only one writer at a time: read it before.
    with suppress(EhrError):
        _judged(services, _model(services, identity, body), body)

    def payload_of(session: Session) -> Payload:
        judgement = _judged(services, ModelRepository(session).get(identity.owner, body.model_id), body)
        return payload(GeneratePayload, **body.model_dump(), warnings=judgement.warnings)

    deed = Deed(identity, "POST /generate", key, body.model_dump(mode="json"))
    return accepted(response, *submit(services, deed, "generate", payload_of))


@router.post("/generate/estimate")
def estimate_cohort(body: GenerateRequest, services: Services_, identity: Maker) -> EstimateAnswer:
    """Tell what a request to `POST /generate` would take, without making anything.

    How many training records satisfy it, how it would be met, time and memory from what was measured when the model was
    trained, and the nearest condition that can be had if this one cannot.
    """
    model = _model(services, identity, body)
    offered = check_limits(services, model, body)
    method = offered if body.asks_for_something else None
    judgement = judge(services, model, body)
    workers = _workers(services)
    costs = model.details.get("costs")
    part_records = services.settings.part_records
    at_a_time = parallel_parts(workers or [], 1 if costs is None else costs["threads"])
    expected = expectation(costs, method, body.steps, body.n, part_records, at_a_time)
    index = services.training_index_of(model)
    return EstimateAnswer(
        feasible=judgement.problem is None,
        problem=None if judgement.problem is None else str(judgement.problem),
        training_records=None if index is None else rounded(index.n_records, index.n_records),
        support=SupportAnswer.of(judgement.support),
        targets=judgement.targets,
        method=method,
        steps=body.steps if expected.steps is None else expected.steps,
        parts=parts_of(body.n, part_records)[0],
        workers=None if workers is None else sum(worker.slots for worker in workers),
        seconds=expected.seconds,
        memory_gib=expected.memory_gib,
        warnings=[*judgement.warnings, *_warnings(workers, costs is None)],
        relaxation=judgement.relaxation,
    )


def _model(services: Services, identity: Identity, body: GenerateRequest) -> Model:
    with services.database.read_scope() as session:
        return ModelRepository(session).get(identity.owner, body.model_id)


def _judged(services: Services, model: Model, body: GenerateRequest) -> Judgement:
    """The judgement of a request that can be carried out; RequestError with the nearest that can if it cannot."""
    check_limits(services, model, body)
    judgement = judge(services, model, body)
    if judgement.problem is not None:
        if judgement.relaxation is not None:
            judgement.problem.more["relaxation"] = judgement.relaxation.model_dump()
        raise judgement.problem
    return judgement


def _workers(services: Services) -> list[WorkerFacts] | None:
    try:
        return services.broker.workers()
    except BrokerError:
        return None


def _warnings(workers: list[WorkerFacts] | None, costs_unknown: bool) -> list[str]:
    warnings = []
    if workers is None:
        warnings.append("the broker does not answer: the time is that of one worker")
    elif not any(worker.slots for worker in workers):
        warnings.append("no worker is running at present: the job would wait for one")
    if costs_unknown:
        warnings.append("this model was not timed when it was trained: time and memory are not known")
    return warnings
