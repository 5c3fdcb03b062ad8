"""Generation of cohorts, and what one would take."""

from fastapi import APIRouter, Response

from app.access import ADMIN, Maker, Services_
from app.estimates import expectation, parallel_parts, parts_of
from app.feasibility import feasibility_of
from app.schemas.answers import EstimateAnswer, JobAnswer, SupportAnswer
from app.schemas.requests import GenerateRequest
from app.services import Services
from app.submissions import IdempotencyKey, Submission, accepted, checked_payload, replayed_job, submit
from ehr.disclosure import rounded
from model_store.repositories import ModelRepository
from runtime.broker import BrokerError, WorkerFacts
from worker.contract import GeneratePayload

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
    submission = Submission(identity, "POST /generate", key, body.model_dump(mode="json"))
    if (job := replayed_job(services, submission)) is not None:
        return accepted(response, job, replayed=True)
    model = services.row(ModelRepository, identity.owner, body.model_id)
    feasibility = feasibility_of(services, model, body)
    feasibility.require()
    payload = checked_payload(GeneratePayload, **dict(body), warnings=feasibility.warnings)
    return accepted(response, *submit(services, submission, "generate", payload, {ModelRepository: model.id}))


@router.post("/generate/estimate")
def estimate_cohort(body: GenerateRequest, services: Services_, identity: Maker) -> EstimateAnswer:
    """Tell what a request to `POST /generate` would take, without making anything.

    How many training records satisfy it, how it would be met, time and memory from what was measured when the model was
    trained, and the nearest condition that can be had if this one cannot.
    """
    model = services.row(ModelRepository, identity.owner, body.model_id)
    feasibility = feasibility_of(services, model, body)
    workers = _workers(services)
    costs = model.details.get("costs")
    part_records = services.settings.part_records
    at_a_time = parallel_parts(workers or [], 1 if costs is None else costs["threads"])
    expected = expectation(costs, feasibility.method, body.steps, body.n, part_records, at_a_time)
    index = services.training_index_of(model)
    return EstimateAnswer.of(
        feasibility,
        feasible=feasibility.problem is None,
        problem=None if feasibility.problem is None else str(feasibility.problem),
        training_records=None if index is None else rounded(index.n_records, index.n_records),
        support=SupportAnswer.of(feasibility.support),
        steps=body.steps if expected.steps is None else expected.steps,
        parts=parts_of(body.n, part_records)[0],
        workers=None if workers is None else sum(worker.slots for worker in workers),
        seconds=expected.seconds,
        memory_gib=expected.memory_gib,
        warnings=[*feasibility.warnings, *_warnings(workers, costs is None)],
    )


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
