"""Models: training, cards, comparison."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from app.access import Reader, Services_, Trainer
from app.library import Cursor
from app.pages.svg import curve
from app.routers.exposure import get_model_exposure
from app.routers.models import get_model
from app.schemas.answers import ModelAnswer
from app.services import Services
from app.web import lists
from app.web.shell import page, page_router
from ehr.errors import NotFoundError
from ehr.generators import GENERATORS, HISTORY_GENERATORS
from ehr.reports import FAMILIES
from model_store.repositories import DatasetRepository

router = page_router()
MOST_COMPARED = 6
TITLES = {family.name: family.title for family in FAMILIES}
# What each preset is for; a new one is listed without words until somebody writes some.
PRESETS = {
    "auto": "By rule from the size of your data, with a forecast of its time. Right for nearly everyone.",
    "fast": "Half the time of the best one, and nearly as good.",
    "best": "Twice the passes over the data, with more against learning records by heart.",
    "paper-mimic": "The published settings for MIMIC: slow on a CPU, for comparison with the paper.",
    "paper-large": "The published settings for large data: needs a GPU.",
}


@router.get("/app/models")
def show_models(request: Request, services: Services_, identity: Reader, cursor: Cursor = None) -> Response:
    models = lists.models(services, identity, 25, cursor)
    training = [job for job in lists.jobs(services, identity, 10, kind="train").items if job.state != "succeeded"]
    return page(request, "models.html", identity, {"active": "models", "models": models, "training": training})


@router.get("/app/models/new")
def show_training(
    request: Request, services: Services_, identity: Trainer, dataset: Annotated[str, Query(max_length=64)] = ""
) -> Response:
    datasets = lists.datasets(services, identity, 100).items
    presets = [(name, PRESETS.get(name, "")) for name in ("auto", *GENERATORS[0].presets)]
    shown = {
        "datasets": datasets,
        "chosen": dataset,
        "presets": presets,
        "generators": (*GENERATORS, *HISTORY_GENERATORS),
    }
    return page(request, "train.html", identity, {"active": "models", **shown})


@router.get("/app/models/compare")
def show_comparison(
    request: Request, services: Services_, identity: Reader, id: Annotated[list[str] | None, Query()] = None
) -> Response:
    models = [get_model(each, services, identity) for each in dict.fromkeys((id or [])[:MOST_COMPARED])]
    attacks = dict.fromkeys(name for model in models for name in _attacks(model))
    families = dict.fromkeys(name for model in models for name in model.verdicts.families)
    shown = {
        "active": "models",
        "models": models,
        "attacks": {model.id: _attacks(model) for model in models},
        "attack_names": list(attacks),
        "families": families,
        "titles": TITLES,
    }
    return page(request, "compare_models.html", identity, shown)


@router.get("/app/models/{model_id}")
def show_model(request: Request, model_id: str, services: Services_, identity: Reader) -> Response:
    model = get_model(model_id, services, identity)
    shown = {
        "model": model,
        "dataset": _dataset(services, identity.owner, model.dataset_id),
        "exposure": get_model_exposure(model_id, services, identity),
        "picture": curve(points_of(model.details.get("curve") or [])),
        "titles": TITLES,
        "attacks": _attacks(model),
    }
    return page(request, "model.html", identity, {"active": "models", **shown})


def points_of(told: list[dict[str, float]]) -> list[tuple[float, float, float]]:
    """(epoch, training loss, held-out loss), where both are known."""
    return [(p["epoch"], p["loss"], p["held_out"]) for p in told if {"epoch", "loss", "held_out"} <= p.keys()]


def _attacks(model: ModelAnswer) -> dict[str, tuple[float | None, float | None]]:
    """Each attack of the audit with how well it and its control tell members from others; custodians' alone."""
    told = (model.details.get("audit") or {}).get("attacks", [])
    return {
        f"{each['title']}{', ' + each['variant'] if each['variant'] else ''}": (
            each["auc"]["value"],
            each["control_auc"]["value"],
        )
        for each in told
    }


def _dataset(services: Services, owner: str, dataset_id: str) -> str | None:
    """What the data set is called, if it is still there."""
    try:
        return str(services.row(DatasetRepository, owner, dataset_id).name)
    except NotFoundError:
        return None
