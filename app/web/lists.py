"""The lists of the public API as pages need them: newest first, so many at a time."""

from app.access import Identity
from app.routers.cohorts import list_cohorts
from app.routers.datasets import list_datasets
from app.routers.jobs import list_jobs
from app.routers.models import list_models
from app.schemas.answers import CohortAnswer, DatasetAnswer, JobAnswer, ModelAnswer, PageAnswer, State
from app.services import Services
from model_store.repositories.base import Selection
from worker.contract import Kind

NEWEST = Selection()


def datasets(services: Services, who: Identity, limit: int, cursor: str | None = None) -> PageAnswer[DatasetAnswer]:
    return list_datasets(services, who, NEWEST, cursor=cursor, limit=limit)


def models(services: Services, who: Identity, limit: int, cursor: str | None = None) -> PageAnswer[ModelAnswer]:
    return list_models(services, who, NEWEST, cursor=cursor, limit=limit)


def cohorts(services: Services, who: Identity, limit: int, cursor: str | None = None) -> PageAnswer[CohortAnswer]:
    return list_cohorts(services, who, NEWEST, cursor=cursor, limit=limit)


def jobs(
    services: Services,
    who: Identity,
    limit: int,
    cursor: str | None = None,
    kind: Kind | None = None,
    state: State | None = None,
) -> PageAnswer[JobAnswer]:
    return list_jobs(services, who, NEWEST, kind, state, cursor, limit)


def model_names(services: Services, who: Identity) -> dict[str, str]:
    """What models are called, by id."""
    return {model.id: model.name for model in models(services, who, 500).items}
