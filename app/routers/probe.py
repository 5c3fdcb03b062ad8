"""A few records at once, to look at before a cohort is asked for."""

from dataclasses import asdict

from fastapi import APIRouter

from app.access import Maker, Services_
from app.exposure import caps_of, exposed_by
from app.gate import unknown
from app.histories import draws_histories, feasibility_for
from app.readings import readings_of
from app.schemas.codes import ModelCodeAnswer, ProbeAnswer
from app.schemas.requests import GenerateRequest, ProbeRequest
from app.submissions import audit
from ehr.errors import ConflictError, RequestError
from ehr.relaxation import terms_of
from model_store.repositories import ExposureRepository, ModelRepository, WithholdingRepository

router = APIRouter(tags=["cohorts"])


@router.post("/probe")
def probe_model(body: ProbeRequest, services: Services_, identity: Maker) -> ProbeAnswer:
    """Show a few records that satisfy conditions, at once and without a job.

    They are records that the model drew once, after training: the first ones that satisfy the condition, in shares as
    the targets ask. There may be fewer than asked for, or none, where a cohort would have them drawn. What would
    withhold a cohort of this request withholds them too, and they are counted as a cohort of so many records is.
    """
    model = services.row(ModelRepository, identity.owner, body.model_id)
    if draws_histories(model):
        raise RequestError("model_id: this model draws patients over time, of whom there is no preview")
    request = GenerateRequest(**dict(body))
    feasibility = feasibility_for(services, model, request)
    feasibility.require()
    facts, reference = services.facts_of(model), services.reference_of(model)
    if feasibility.withheld is not None or reference is None:
        raise ConflictError(f"no record is shown: {feasibility.withheld or unknown(facts.reference)}")
    parts = [term.requirement for term in terms_of(facts.vocabulary, body.conditions)]
    shares = [(tuple(facts.vocabulary.matching_any(target.codes)), target.share) for target in body.targets]
    rows = reference.first(parts, shares, body.n)
    with services.database.session_scope() as session:
        against = WithholdingRepository(session).against(identity.owner, model, feasibility.request)
        if against is not None:
            why = against.why if identity.is_custodian or against.by == "model" else ""
            raise ConflictError(f"no record is shown: cohorts of this request are withheld. {why}".strip())
        exposes = exposed_by(request.model_copy(update={"n": len(rows)}), feasibility)
        ExposureRepository(session).count(
            identity.owner, identity.holder, exposes, caps_of(services.settings, identity)
        )
        audit(session, identity, "probe", model.id, **asdict(exposes))
    vocabulary = facts.vocabulary
    records = [[vocabulary.codes[code] for code in codes] for codes in reference.codes_of(rows)]
    shown = sorted({code for record in records for code in record})
    return ProbeAnswer(
        records=records,
        codes=[ModelCodeAnswer(code=code, description=vocabulary.name_of(code)) for code in shown],
        support=feasibility.support,
        warnings=[*readings_of(vocabulary, request).notes, *feasibility.warnings],
    )
