"""Whether the service lives, is ready, and what it is doing."""

from collections.abc import Callable

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from app.access import Admin, Services_
from app.problems import ReadinessError, problem_of
from app.services import Services
from ehr.errors import EhrError
from model_store import migrate
from model_store.database import Database
from model_store.repositories import KeyRepository

router = APIRouter(tags=["service"])
NEEDED = frozenset({"database", "schema"})
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/healthz")
async def get_health() -> dict[str, str]:
    """Tell that the process lives."""
    return {"status": "alive"}


@router.get("/readyz", response_class=JSONResponse)
def get_readiness(services: Services_) -> Response:
    """Tell whether requests can be served, and how each part is: the database, its schema, the broker and the store.

    Without the database nothing works: `503`. Without the broker submissions are accepted and wait.
    """
    checks: dict[str, Callable[[], None]] = {
        "database": lambda: _ask(services.database),
        "schema": lambda: migrate.check(services.database.engine),
        "broker": services.broker.check,
        "store": services.store.check,
    }
    found = {name: _outcome(check) for name, check in checks.items()}
    impaired = [name for name, outcome in found.items() if outcome != "ok"]
    if NEEDED.isdisjoint(impaired):
        told = {"status": "ready", "checks": found, "impaired": impaired, "open": _is_open(services)}
        return JSONResponse(told)
    return problem_of(ReadinessError(f"does not answer as it should: {', '.join(impaired)}"), checks=found)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {}}, "description": "in Prometheus' format"}},
)
def get_metrics(services: Services_, identity: Admin) -> Response:
    """Show requests by route and live jobs by state, for Prometheus. Needs the scope `admin` where there are keys."""
    return Response(services.metrics.text(), media_type=PROMETHEUS)


def _outcome(check: Callable[[], None]) -> str:
    try:
        check()
    except EhrError as error:
        return str(error)
    except SQLAlchemyError as error:
        return f"does not answer: {type(error).__name__}"
    return "ok"


def _ask(database: Database) -> None:
    with database.read_scope() as session:
        session.execute(select(1))


def _is_open(services: Services) -> bool:
    with services.database.read_scope() as session:
        return not KeyRepository(session).any_ever()
