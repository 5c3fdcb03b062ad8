"""A few records at once, to look at before a cohort is asked for."""

from dataclasses import asdict

from fastapi import APIRouter

from app.access import Maker, Services_
from app.exposure import caps_of, exposed_by
from app.gate import unknown
from app.histories import draws_histories, feasibility_for, shown_patients
from app.readings import readings_of
from app.schemas.codes import ModelCodeAnswer, ProbeAnswer
from app.schemas.requests import GenerateRequest, ProbeRequest
from app.services import Services
from app.submissions import audit
from ehr.errors import ConflictError
from ehr.histories import Histories
from ehr.history_targets import resolve_targets
from ehr.relaxation import terms_of
from model_store.repositories import ExposureRepository, ModelRepository, WithholdingRepository
from model_store.tables import Model

router = APIRouter(tags=["cohorts"])


@router.post("/probe")
def probe_model(body: ProbeRequest, services: Services_, identity: Maker) -> ProbeAnswer:
    """Show a few records that satisfy conditions, at once and without a job.

    They are records that the model drew once, after training: the first ones that satisfy the condition, in shares as
    the targets ask. There may be fewer than asked for, or none, where a cohort would have them drawn. What would
    withhold a cohort of this request withholds them too, and they are counted as a cohort of so many records is.
    """
    model = services.row(ModelRepository, identity.owner, body.model_id)
    request = GenerateRequest(**dict(body))
    feasibility = feasibility_for(services, model, request)
    feasibility.require()
    shown = _shown(services, model, body)
    if feasibility.withheld is not None or shown is None:
        reference = services.facts_of(model).reference
        raise ConflictError(f"no record is shown: {feasibility.withheld or unknown(reference)}")
    with services.database.session_scope() as session:
        against = WithholdingRepository(session).against(identity.owner, model, feasibility.request)
        if against is not None:
            why = against.why if identity.is_custodian or against.by == "model" else ""
            raise ConflictError(f"no record is shown: cohorts of this request are withheld. {why}".strip())
        exposes = exposed_by(request.model_copy(update={"n": len(shown)}), feasibility)
        ExposureRepository(session).count(
            identity.owner, identity.holder, exposes, caps_of(services.settings, identity)
        )
        audit(session, identity, "probe", model.id, **asdict(exposes))
    vocabulary = services.facts_of(model).vocabulary
    records = [] if isinstance(shown, Histories) else [[vocabulary.codes[code] for code in codes] for codes in shown]
    patients = shown_patients(shown, vocabulary) if isinstance(shown, Histories) else []
    codes = {code for record in records for code in record}
    for patient in patients:
        codes.update(patient.static, *(visit.codes for visit in patient.visits))
    return ProbeAnswer(
        records=records,
        patients=patients,
        codes=[ModelCodeAnswer(code=code, description=vocabulary.name_of(code)) for code in sorted(codes)],
        support=feasibility.support,
        warnings=[*readings_of(vocabulary, request).notes, *feasibility.warnings],
    )


def _shown(services: Services, model: Model, body: ProbeRequest) -> list[list[int]] | Histories | None:
    """Records or patients that the model drew once and that are as asked; None if there are none to be asked about."""
    vocabulary = services.facts_of(model).vocabulary
    if draws_histories(model):
        patients, condition = services.patients_of(model), body.history.resolve(vocabulary)
        targets = resolve_targets(vocabulary, condition, body.targets)
        return None if patients is None else patients.first(condition, targets, body.n)
    reference = services.reference_of(model)
    if reference is None:
        return None
    parts = [term.requirement for term in terms_of(vocabulary, body.conditions)]
    shares = [(tuple(vocabulary.matching_any(target.codes)), target.share) for target in body.targets]
    return reference.codes_of(reference.first(parts, shares, body.n))
