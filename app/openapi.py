"""What the OpenAPI document and /docs say about the service as a whole."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.problems import MEDIA_TYPE
from app.schemas.answers import Problem

try:
    VERSION = version("ehr-d3pm")
except PackageNotFoundError:
    VERSION = "0"

SUMMARY = "Synthetic cohorts of medical codes by guided discrete diffusion."
DESCRIPTION = """
1. `POST /datasets` uploads real records, 2. `POST /train` learns from them, 3. `POST /generate` draws synthetic ones,
under conditions if you like (`POST /generate/estimate` tells beforehand what that takes),
4. `GET /cohorts/{job}/records` downloads them, `GET /reports/{job}` tells how good they are.

**Jobs.** Every submission answers `202` with a job and `Location: /jobs/{id}`. Poll it, or follow
`GET /jobs/{id}/events`.

**Safe to repeat.** Send an `Idempotency-Key` with a POST; sent again, it answers with the same job.

**Errors** are `application/problem+json` (RFC 9457). `type` is stable; `detail` names the field and what is allowed.

**Access.** `Authorization: Bearer ehr_...` with a key of `ehr-d3pm keys create`. Scopes: `data` (upload, evaluate,
release, delete, and see what is computed from real records), `train`, `generate`, `read` (models, cohorts, reports),
`admin` (all of these, `/audit` and `/metrics`). What belongs to someone else is not found. Without any key the service
is open, on loopback only.
"""
TAGS = [
    {"name": "datasets", "description": "Real records at rest. Counts of 1 to 10 patients are never shown."},
    {"name": "models", "description": "Training and what came of it."},
    {"name": "cohorts", "description": "Synthetic records."},
    {"name": "jobs", "description": "Work that is waiting, running or done."},
    {"name": "webhooks", "description": "Being told how jobs end, as standardwebhooks.com has it."},
    {"name": "reports", "description": "How close a cohort is to records it has never seen."},
    {"name": "service", "description": "Health, readiness, metrics and the audit trail."},
]
ERRORS = {
    "400": "The request cannot be read",
    "401": "A valid API key is needed",
    "403": "The API key does not allow this",
    "404": "There is no such thing, or it belongs to someone else",
    "405": "This method is not offered here",
    "409": "The present state does not allow this",
    "413": "The request is too large",
    "422": "The request cannot be carried out as it is",
    "429": "As much as the owner or the key may have; it says of what, and `Retry-After` when waiting helps",
    "416": "There is nothing in this range",
    "500": "Something went wrong",
    "503": "Something the service needs does not answer",
    "507": "There is no room left",
}
SUBMISSION_HEADERS = {
    "Location": {"description": "where to look: /jobs/{id}", "schema": {"type": "string"}},
    "Idempotent-Replayed": {"description": "`true` if the key had come before", "schema": {"type": "string"}},
}


def install(app: FastAPI) -> None:
    """Let the application describe every operation with the problems it may answer."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    schemas = document["components"]["schemas"]
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {}) | {"Problem": problem}
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for path in document["paths"].values():
        for operation in path.values():
            _describe_problems(operation)
    return document


def _describe_problems(operation: dict[str, Any]) -> None:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status, description in ERRORS.items():
        operation["responses"][status] = {"description": description, "content": content}
    if "202" in operation["responses"]:
        operation["responses"]["202"]["headers"] = SUBMISSION_HEADERS
