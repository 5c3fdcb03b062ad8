"""Generation of cohorts, and what one would take."""

from fastapi import APIRouter, Response

from app.access import ADMIN, Maker, Services_
from app.comparison import comparison_of
from app.estimates import expectation, parallel_parts, parts_of
from app.exposure import exposed_by, request_hash
from app.histories import draws_histories, feasibility_for
from app.readings import readings_of
from app.schemas.answers import EstimateAnswer, JobAnswer
from app.schemas.requests import GenerateRequest
from app.services import Services
from app.submissions import (
    NORMAL,
    IdempotencyKey,
    Named,
    Priority,
    Submission,
    accepted,
    audit,
    checked_payload,
    replayed_job,
    submit,
)
from model_store.repositories import ModelRepository
from model_store.tables import CohortRequest
from runtime.broker import BrokerError, WorkerFacts
from worker.contract import GeneratePayload

router = APIRouter(tags=["cohorts"])


@router.post("/generate", status_code=202)
def generate_cohort(
    body: GenerateRequest,
    response: Response,
    services: Services_,
    identity: Maker,
    key: IdempotencyKey = None,
    priority: Priority = NORMAL,
) -> JobAnswer:
    """Generate a cohort.

    Codes and wildcards are checked against the model's vocabulary at once: what is impossible is a 422 with the nearest
    condition that is not, in `relaxation`. What hardly any patient would satisfy, by the records that the model drew
    once, is accepted with a warning in `warnings`, and its cohort waits for a custodian's release.
    Codes need not be written as the vocabulary does (`e11.65`): `request.conditions` of the job has them as they were
    read and `request.as_asked`, if that differs, as they were sent. Unknown and ambiguous ones are a 422 with
    `candidates`.
    The cohort's id is the job's id. `evaluate: false` needs the scope `admin`: no report will withhold such a cohort.
    Only with the scope `data`, and while the model's data is there, is the cohort compared with real records; otherwise
    what is known of its model decides whether it may leave. How much each key has had of a model is counted: a `429`
    says that it is enough.
    """
    if not body.evaluate:
        identity.require(ADMIN)
    submission = Submission(identity, "POST /generate", key, body.model_dump(mode="json"), priority=priority)
    if (job := replayed_job(services, submission)) is not None:
        return accepted(identity, response, job, replayed=True)
    model = services.row(ModelRepository, identity.owner, body.model_id)
    feasibility = feasibility_for(services, model, body)
    feasibility.require()
    read = readings_of(services.facts_of(model).vocabulary, body)
    values = dict(body) | {"conditions": read.conditions, "targets": read.targets, "as_asked": read.as_asked}
    comparison = comparison_of(services, identity, model, body, feasibility)
    warnings = [*read.notes, *feasibility.warnings, *comparison.notices]
    values |= {"warnings": warnings, "against_real": comparison.against_real}
    over_time = draws_histories(model)
    values |= {"history": read.history if over_time else None, "origin": str(body.origin) if over_time else None}
    payload = checked_payload(GeneratePayload, **values)
    asked = CohortRequest(
        job_id=submission.job_id,
        owner=identity.owner,
        model_id=model.id,
        request=feasibility.request.as_json(),
        withholds=feasibility.gate.withholds,
    )
    named: Named = {ModelRepository: model.id}
    exposes = exposed_by(body, feasibility)
    submitted = submit(services, submission, "generate", payload, named, rows=[asked], exposes=exposes)
    answer = accepted(identity, response, *submitted)
    return answer.model_copy(update={"warnings": [*answer.warnings, *comparison.about_patients]})


@router.post("/generate/estimate")
def estimate_cohort(body: GenerateRequest, services: Services_, identity: Maker) -> EstimateAnswer:
    """Tell what a request to `POST /generate` would take, without making anything.

    How many of the records that the model drew once satisfy it, how it would be met, whether the cohort would be
    withheld, time and memory from what was measured when the model was trained, and the nearest request that can be met
    if this one cannot. No patient is looked at: the answer is a function of the model and the request.
    """
    model = services.row(ModelRepository, identity.owner, body.model_id)
    feasibility = feasibility_for(services, model, body)
    with services.database.session_scope() as session:
        audit(session, identity, "estimate", model.id, condition=request_hash(feasibility.request))
    comparison = comparison_of(services, identity, model, body, feasibility)
    workers = _workers(services)
    costs = model.details.get("costs")
    part_records = services.settings.part_records
    at_a_time = parallel_parts(workers or [], 1 if costs is None else costs["threads"])
    drawing = feasibility.method, body.steps, body.n, part_records, at_a_time, feasibility.sampling
    expected = expectation(costs, *drawing)
    drawn, problem = services.facts_of(model).reference, feasibility.problem
    notes = [] if problem is not None else readings_of(services.facts_of(model).vocabulary, body).notes
    return EstimateAnswer.of(
        feasibility,
        feasible=problem is None,
        problem=None if problem is None else str(problem),
        candidates=[] if problem is None else problem.more.get("candidates", []),
        training_records=None if drawn is None else drawn.training_records,
        steps=body.steps if expected.steps is None else expected.steps,
        parts=parts_of(body.n, part_records)[0],
        workers=None if workers is None else sum(worker.slots for worker in workers),
        seconds=expected.seconds,
        memory_gib=expected.memory_gib,
        report_seconds=comparison.report_seconds,
        warnings=[
            *notes,
            *feasibility.warnings,
            *comparison.notices,
            *comparison.about_patients,
            *_warnings(workers, costs is None),
        ],
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
