"""Every error as RFC 9457 `application/problem+json`: one table from error classes to answers.

`type` is stable: clients may compare it. `detail` is for people. A test fails when an error class has no row.
"""

import logging
import math
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy import exc as sql
from starlette.exceptions import HTTPException

from ehr import errors
from runtime.broker import BrokerError
from runtime.logs import request_id

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:ehr-d3pm:problem:"
log = logging.getLogger(__name__)


class ReadinessError(errors.EhrError):
    """Something the service needs does not answer."""

    reason = "not-ready"


@dataclass(frozen=True)
class Row:
    error: type[Exception]
    status: int
    slug: str
    title: str


# The most specific class decides, wherever it stands in the table.
PROBLEMS: tuple[Row, ...] = (
    Row(errors.NotFoundError, 404, "not-found", "There is no such thing"),
    Row(errors.ConflictError, 409, "conflict", "The present state does not allow this"),
    Row(errors.IdempotencyConflictError, 409, "idempotency-conflict", "The Idempotency-Key was used differently"),
    Row(errors.WithheldError, 409, "withheld", "The cohort is withheld for privacy"),
    Row(errors.UnevaluatedError, 409, "not-evaluated", "The cohort is still being evaluated"),
    Row(errors.RequestError, 422, "invalid-request", "The request cannot be carried out as it is"),
    Row(errors.ConfigError, 422, "invalid-request", "The request cannot be carried out as it is"),
    Row(errors.UnknownCodeError, 422, "unknown-code", "A code is not in the vocabulary"),
    Row(errors.ConditionError, 422, "bad-condition", "The condition cannot be met"),
    Row(errors.DataError, 422, "bad-data", "The data cannot be used"),
    Row(errors.TooLargeError, 413, "too-large", "The request is too large"),
    Row(errors.AccessError, 401, "unauthorized", "A valid API key is needed"),
    Row(errors.ScopeError, 403, "forbidden", "The API key does not allow this"),
    Row(errors.ExposureError, 429, "exposure-cap", "The key has had as much of this model as it may have"),
    Row(errors.QuotaError, 429, "quota", "The owner has as much at a time as they may have"),
    Row(errors.TooManyFailuresError, 429, "too-many-failures", "Too many requests without a valid key"),
    Row(errors.TimeLimitError, 500, "time-limit", "The job has run for as long as one may"),
    Row(errors.OutOfMemoryError, 500, "out-of-memory", "There is not enough memory"),
    Row(errors.StoreError, 503, "store-unavailable", "The store cannot be used"),
    Row(errors.StoreFullError, 507, "store-full", "There is no room left"),
    Row(errors.CorruptError, 500, "corrupt", "Stored data was damaged"),
    Row(errors.OutsideError, 502, "outside", "A source or a sink does not do its part"),
    Row(errors.StateError, 500, "corrupt", "Stored data was damaged"),
    Row(errors.SchemaError, 503, "schema", "The database needs a migration"),
    Row(BrokerError, 503, "broker-unavailable", "The broker does not answer"),
    Row(ReadinessError, 503, "not-ready", "The service is not ready"),
    Row(errors.TrainingError, 500, "training-failed", "Training cannot go on"),
    Row(errors.TrainingStopped, 409, "cancelled", "The job was cancelled"),
    Row(errors.JobInterruptedError, 409, "cancelled", "The job was interrupted"),
    Row(errors.LeaseLostError, 409, "lease-lost", "Another attempt has taken over"),
    Row(errors.JobCancelledError, 409, "cancelled", "The job was cancelled"),
    Row(errors.TurnOverError, 409, "turn-over", "It is another job's turn"),
    Row(errors.ComeBackError, 409, "waiting", "The job waits for somebody outside"),
    Row(errors.WorkerStoppingError, 409, "worker-stopping", "The worker is told to stop"),
    Row(errors.EhrError, 500, "internal", "Something went wrong"),
    Row(sql.OperationalError, 503, "database-unavailable", "The database does not answer"),
    Row(sql.InterfaceError, 503, "database-unavailable", "The database does not answer"),
    Row(sql.TimeoutError, 503, "busy", "Too many requests at this moment"),
    Row(Exception, 500, "internal", "Something went wrong"),
)
ROW_OF: dict[type[Exception], Row] = {row.error: row for row in PROBLEMS}

# What the framework itself answers, by status; unlisted ones get `http-<status>`.
HTTP_SLUGS = {
    400: ("malformed", "The request cannot be read"),
    404: ("not-found", "There is no such thing"),
    405: ("method-not-allowed", "This method is not offered here"),
    413: ("too-large", "The request is too large"),
    416: ("range-not-satisfiable", "There is nothing in this range"),
    415: ("unsupported-media-type", "This kind of body is not accepted"),
}
# what exposure is counted in
COUNTED = {
    "records": "synthetic records",
    "conditions": "distinct conditions",
    "small_conditions": "conditions that hardly any patient satisfies",
}
# what is limited at a time -> in words, and which setting has the limit
LIMITED = {
    "queued_jobs": "jobs waiting",
    "running_jobs": "jobs running",
    "queued_records": "synthetic records waited for",
    "stored_bytes": "bytes in datasets, models, cohorts and uploads",
}
RETRY_SECONDS = 30  # for what becomes less by itself
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "2"}}


def row_for(error: Exception) -> Row:
    """The row of the error's most specific listed class."""
    return next(ROW_OF[cls] for cls in type(error).__mro__ if cls in ROW_OF)


def problem(status: int, slug: str, title: str, detail: str, **more: Any) -> JSONResponse:
    """An answer in problem form."""
    body = {"type": TYPE_PREFIX + slug, "title": title, "status": status, "detail": detail} | more
    if (current := request_id.get()) is not None:
        body["request_id"] = current
    return JSONResponse(body, status, HEADERS.get(status), media_type=MEDIA_TYPE)


def problem_of(error: Exception, **more: Any) -> JSONResponse:
    """The answer to an error. Only deliberate errors are quoted: the words of others may contain data."""
    row = row_for(error)
    deliberate = isinstance(error, errors.EhrError)
    if row.status >= 500:
        log.error("request failed", extra={"problem": row.slug}, exc_info=None if deliberate else error)
    if isinstance(error, errors.RequestError):
        more = error.more | more
    if isinstance(error, errors.ExposureError | errors.QuotaError):
        more = {name: getattr(error, name) for name in ("counted", "cap", "used", "asked")} | more
    answer = problem(row.status, row.slug, row.title, detail_of(error) if deliberate else row.title, **more)
    if (seconds := _retry_after(error)) is not None:
        answer.headers["Retry-After"] = str(seconds)
    return answer


def _retry_after(error: Exception) -> int | None:
    """Seconds after which the same request may be answered differently; None if waiting does not help."""
    match error:
        case errors.TooManyFailuresError(wait_seconds=seconds):
            return math.ceil(seconds)
        case errors.QuotaError(counted=counted, cap=cap, asked=asked) if counted != "stored_bytes" and asked <= cap:
            return RETRY_SECONDS
    return None


def detail_of(error: Exception) -> str:
    """What a deliberate error states, and which request helps."""
    match error:
        case errors.WithheldError(by=by, cohort_id=cohort_id, report_id=report_id):
            look = {"report": f" See GET /reports/{report_id}.", "evaluation": " Evaluate it again (POST /reports)."}
            release = f"A custodian (scope 'data') can release it: POST /cohorts/{cohort_id}/release."
            return f"{error}{look.get(by, '')} {release}"
        case errors.UnevaluatedError(evaluation_id=str(job_id)):
            return f"{error}: see GET /jobs/{job_id}."
        case errors.ExposureError(counted=counted, cap=cap, used=used, asked=asked):
            had = f"This key may have {cap:,} {COUNTED[counted]} of this model and has had {used:,}; this asks for"
            raised = "Waiting does not help: whoever runs the service can raise it with 'ehr-d3pm keys caps'."
            return f"{had} {asked:,} more. {raised} GET /models/{{id}}/exposure shows what was counted."
        case errors.QuotaError(counted=counted, cap=cap, used=used, asked=asked):
            has = (
                f"The owner of this key may have {cap:,} {LIMITED[counted]} and has {used:,}; this asks for {asked:,}."
            )
            fewer = "Delete some" if counted == "stored_bytes" else "Wait for some to end, or cancel some"
            raised = "whoever runs the service can raise it with 'ehr-d3pm owners limit'."
            return f"{has} {fewer}, or ask: {raised}"
    return str(error)


def install(app: FastAPI) -> None:
    """Make every error of the application a problem."""
    app.add_exception_handler(errors.EhrError, _on_error)
    app.add_exception_handler(sql.SQLAlchemyError, _on_error)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    return problem_of(as_told(error, _is_custodian(request)))


def as_told(error: Exception, to_custodian: bool) -> Exception:
    """The error as the reader may see it."""
    if isinstance(error, errors.WithheldError) and error.by == "report" and not to_custodian:
        # why is in a report on real records, which only their custodians read
        return errors.WithheldError("The cohort is withheld.", error.cohort_id, error.by, None, error.report_id)
    return error


def detail_for(request: Request, error: errors.EhrError) -> str:
    """What a deliberate error tells whoever sent the request."""
    return detail_of(as_told(error, _is_custodian(request)))


def _is_custodian(request: Request) -> bool:
    return bool(getattr(getattr(request.state, "identity", None), "is_custodian", False))


async def _on_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    slug, title = HTTP_SLUGS.get(error.status_code, (f"http-{error.status_code}", "The request was refused"))
    answer = problem(error.status_code, slug, title, str(error.detail))
    answer.headers.update(error.headers or {})  # 405 tells what is allowed
    return answer


async def _on_invalid(_: Request, error: Exception) -> JSONResponse:
    """Validation errors name the field and what is allowed, and do not repeat what was sent."""
    assert isinstance(error, RequestValidationError)
    match error.errors()[:1]:  # of a body that is no JSON at all there is one error, and its place is a number
        case [{"type": "json_invalid", "loc": ("body", int(place)), "ctx": {"error": why}}]:
            return problem(400, *HTTP_SLUGS[400], f"the body is not JSON: {why} at character {place}")
    found = [
        {"field": ".".join(str(part) for part in e["loc"])[:200], "message": str(e["msg"])[:500]}
        for e in error.errors()[:50]
    ]
    detail = "; ".join(f"{e['field']}: {e['message']}" for e in found[:5])
    return problem(422, "invalid-request", "The request cannot be carried out as it is", detail, errors=found)
