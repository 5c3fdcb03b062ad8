"""Cohorts: the builder with its estimates and previews, and what was made."""

from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response

from app.access import Identity, Maker, Reader, Services_
from app.histories import draws_histories
from app.library import Cursor
from app.pages.codes import over_time
from app.problems import as_told, detail_for, detail_of
from app.routers.cohorts import get_cohort
from app.routers.generate import estimate_cohort
from app.routers.probe import probe_model
from app.routers.references import list_places
from app.schemas.requests import GenerateRequest, ProbeRequest
from app.services import Services
from app.web import lists
from app.web.shell import page, page_router
from ehr.errors import ConflictError, EhrError, UnevaluatedError
from ehr.formats import WRITERS
from ehr.generators import history_generator_names, spec_named
from ehr.history_conditions import AskedHistoryCondition
from ehr.reports import NamedCodes
from model_store.repositories import ModelRepository, WithholdingRepository

router = page_router()
PREVIEWED = 20
SAMPLING_WORDS = {
    "dealt": "dealt: rare codes as common as the model says",
    "independent": "independent: every record by itself",
}
MEDIA = {
    "long.csv": "one row for each code of each record; opens in Excel, R and pandas",
    "wide.csv": "one row for each record, one column for each code",
    "parquet": "the long table for pandas, polars, DuckDB and Spark",
    "arrow": "the long table as an Arrow stream",
    "feather": "the long table as an Arrow file, which can be mapped into memory",
    "ndjson": "one JSON object for each record",
    "npz": "a sparse matrix for SciPy",
    "omop.zip": "OMOP CDM 5.4 tables",
    "mimic-iii.zip": "tables as MIMIC-III has them",
    "fhir.ndjson": "FHIR R4 resources",
    "meds.parquet": "the MEDS standard",
}


@router.get("/app/cohorts")
def show_cohorts(request: Request, services: Services_, identity: Reader, cursor: Cursor = None) -> Response:
    cohorts = lists.cohorts(services, identity, 25, cursor)
    names = lists.model_names(services, identity)
    return page(request, "cohorts.html", identity, {"active": "cohorts", "cohorts": cohorts, "names": names})


@router.get("/app/cohorts/new")
def show_builder(
    request: Request, services: Services_, identity: Maker, model: Annotated[str, Query(max_length=64)] = ""
) -> Response:
    identity.require("read")
    models = lists.models(services, identity, 100).items
    chosen = next((each for each in models if each.id == model), models[0] if models else None)
    over_time = chosen is not None and chosen.generator in history_generator_names()
    samplings = () if chosen is None else spec_named(chosen.generator).samplings({}, None)
    shown = {"models": models, "chosen": chosen, "over_time": over_time, "samplings": samplings}
    return page(request, "builder.html", identity, {"active": "cohorts", "sampling_words": SAMPLING_WORDS, **shown})


def _what(services: Services, identity: Identity, model_id: str) -> str:
    """What a model draws."""
    try:
        over_time = draws_histories(services.row(ModelRepository, identity.owner, model_id))
    except EhrError:
        return "records"  # the estimate says what is wrong
    return "patients" if over_time else "records"


@router.post("/app/cohorts/estimate")
def show_estimate(request: Request, body: GenerateRequest, services: Services_, identity: Maker) -> Response:
    """A piece of the builder: what the request would take."""
    try:
        estimate, problem = estimate_cohort(body, services, identity), None
    except EhrError as error:
        estimate, problem = None, detail_for(request, error)
    shown = {"estimate": estimate, "problem": problem, "n": body.n, "what": _what(services, identity, body.model_id)}
    return page(request, "estimate.html", identity, shown)


@router.post("/app/cohorts/preview")
def show_preview(request: Request, body: ProbeRequest, services: Services_, identity: Maker) -> Response:
    """A piece of the builder: a few records."""
    try:
        probe, problem = probe_model(body, services, identity), None
    except EhrError as error:
        probe, problem = None, detail_for(request, error)
    names = {} if probe is None else {each.code: each.description for each in probe.codes}
    asked = {*body.conditions.patterns, *(code for target in body.targets for code in target.codes)}
    asked |= set(body.history.patterns)
    return page(request, "preview.html", identity, {"probe": probe, "problem": problem, "names": names, "asked": asked})


@router.get("/app/cohorts/{job_id}")
def show_cohort(request: Request, job_id: str, services: Services_, identity: Reader) -> Response:
    names = lists.model_names(services, identity)
    return page(
        request, "cohort.html", identity, {"active": "cohorts", "names": names, **_shown(services, identity, job_id)}
    )


@router.get("/app/cohorts/{job_id}/downloads")
def show_downloads(request: Request, job_id: str, services: Services_, identity: Reader) -> Response:
    """A piece of the page, asked for again until it is known whether the cohort may leave."""
    return page(request, "downloads.html", identity, _shown(services, identity, job_id))


def _shown(services: Services, identity: Identity, job_id: str) -> dict[str, Any]:
    """With why the cohort may not leave, as a download would answer, or the job that is to find out."""
    shown: dict[str, Any] = {"cohort": get_cohort(job_id, services, identity), "withheld": None, "evaluation": None}
    request = shown["cohort"].manifest.get("request") or {}
    asked = AskedHistoryCondition.model_validate(request.get("history") or {})
    shown["over_time"] = list(over_time(asked, NamedCodes())) if "origin" in request else None
    try:
        with services.database.read_scope() as session:
            WithholdingRepository(session).check(identity.owner, job_id)
    except UnevaluatedError as error:
        shown["evaluation"] = error.evaluation_id
    except ConflictError as error:
        shown["withheld"] = detail_of(as_told(error, identity.is_custodian))
    # the plainest first, and those that nobody has described at the end
    formats = sorted(shown["cohort"].formats, key=lambda name: [*MEDIA].index(name) if name in MEDIA else len(MEDIA))
    sinks = list_places(services, identity).sinks if identity.may("generate") else []
    return shown | {
        "formats": formats,
        "buckets": [place for place in sinks if (place.url or "").startswith("s3://")],
        "databases": [place for place in sinks if place.kind == "postgres"],
        "media": MEDIA,
        "with_names": {writer.name for writer in WRITERS if writer.has_names},
    }
