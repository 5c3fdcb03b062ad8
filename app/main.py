"""The application: `create_app(settings)` for a server or a test, `app.main:production` for uvicorn."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute

from app import openapi, problems, web
from app.middleware import BodyLimitMiddleware, RequestMiddleware
from app.queries import known_parameters
from app.routers import ROUTERS
from app.services import Services
from runtime.logs import configure_logging
from runtime.settings import Settings, get_settings

UPLOAD_PATHS = ("/datasets", "/models/import")
# As many as the database pool keeps connections for. Python runs one thread at a time: more would not be faster, and
# each would open and close a connection of its own.
THREADS = 10


def create_app(settings: Settings) -> FastAPI:
    """An application of its own: nothing is shared with other applications in the process."""
    services = Services(settings)
    app = FastAPI(
        title="EHR-D3PM",
        version=openapi.VERSION,
        summary=openapi.SUMMARY,
        description=openapi.DESCRIPTION,
        openapi_tags=openapi.TAGS,
        lifespan=_lifespan,
        generate_unique_id_function=_operation_id,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    for router in ROUTERS:
        app.include_router(router, dependencies=[Depends(known_parameters)])
    for router in web.ROUTERS:
        app.include_router(router)
    problems.install(app)
    openapi.install(app)
    uploads = dict.fromkeys(UPLOAD_PATHS, settings.max_upload_bytes)
    app.add_middleware(BodyLimitMiddleware, limit=settings.max_body_bytes, upload_limits=uploads)
    app.add_middleware(RequestMiddleware, metrics=services.metrics, denials=services.denials, tracer=services.tracer)
    return app


def production() -> FastAPI:
    """For `uvicorn --factory app.main:production`: settings from the environment, logs as JSON."""
    settings = get_settings()
    configure_logging(settings.log_level)
    web.warm_up()
    return create_app(settings)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    services.sweeper.start()
    services.webhooks.start()
    try:
        yield
    finally:
        await anyio.to_thread.run_sync(services.close)


def _operation_id(route: APIRoute) -> str:
    """The function's name: it stays when paths or tags change."""
    return route.name
