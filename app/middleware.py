"""What surrounds every request: its id, its log line, its metrics, the bound on its body, and the last resort."""

import logging
import re
import secrets
import time
from collections.abc import Mapping

import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import sender_of
from app.denials import STATUSES, Denial, Denials
from app.metrics import Metrics, known_method
from app.problems import problem, problem_of
from model_store.repositories.audit import NOBODY
from runtime.logs import request_id
from runtime.traces import HEADER, NO_TRACES, SERVER, Context, Span, Tracer

log = logging.getLogger("app.requests")
REQUEST_ID_HEADER = "X-Request-ID"
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")  # harmless in a log line
# Multipart boundaries, part headers and form fields come on top of the files themselves.
MULTIPART_OVERHEAD_BYTES = 1 << 20
UNMATCHED = "unmatched"
NOT_TRACED = ("/healthz", "/readyz", "/metrics")  # which are asked every few seconds, and tell nothing of their own


class RequestMiddleware:
    """Outermost: gives the request an id, writes one log line, counts it, notes refusals, and turns what nobody caught
    into a 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics, denials: Denials, tracer: Tracer) -> None:
        self.app, self.metrics, self.denials, self.tracer = app, metrics, denials, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        tracer = NO_TRACES if scope["path"] in NOT_TRACED else self.tracer
        with tracer.span("request", SERVER, Context.of(Headers(scope=scope).get(HEADER))) as span:
            await self._answer(scope, receive, send, span)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, span: Span | None) -> None:
        sent = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        current = sent if REQUEST_ID.match(sent) else secrets.token_hex(8)
        token = request_id.set(current)
        start, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID_HEADER] = current
                headers["X-Content-Type-Options"] = "nosniff"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception as error:
            if status != 0:  # half an answer is out: only a broken connection tells the client that it is not whole
                log.error("answer broken off", exc_info=error)
                raise
            await problem_of(error)(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - start
            # the route's template: a raw path may contain whatever a client typed
            route = getattr(scope.get("route"), "path", UNMATCHED)
            self.metrics.count(scope["method"], route, status, seconds)
            answered = {"status": status, "milliseconds": round(1000 * seconds, 1)}
            log.info("request", extra={"method": scope["method"], "route": route} | answered)
            if span is not None:
                _tell(span, known_method(scope["method"]), route, status, current)
            request_id.reset(token)
            if status in STATUSES and route != UNMATCHED:
                await anyio.to_thread.run_sync(self.denials.note, _denial(scope, route, status))


def _tell(span: Span, method: str, route: str, status: int, current: str) -> None:
    span.name, span.failed = f"{method} {route}", status >= 500
    span.set(http__request__method=method, http__route=route, http__response__status_code=status, request_id=current)


def _denial(scope: Scope, route: str, status: int) -> Denial:
    owner, key_prefix = sender_of(scope)
    return Denial(f"{scope['method']} {route}"[:80], status, owner or NOBODY, key_prefix)


class BodyLimitMiddleware:
    """Refuses bodies over the limit: at once if the length is announced, otherwise when it is passed."""

    def __init__(self, app: ASGIApp, limit: int, upload_limits: Mapping[str, int]) -> None:
        self.app, self.limit, self.upload_limits = app, limit, upload_limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit
        if scope["method"] == "POST" and scope["path"] in self.upload_limits:
            limit = self.upload_limits[scope["path"]] + MULTIPART_OVERHEAD_BYTES
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            await problem(413, "too-large", "The request is too large", _too_large(limit))(scope, receive, send)
            return
        received = 0

        async def bounded_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                # this class, because FastAPI makes any other error while reading a body a 400
                raise HTTPException(413, _too_large(limit))
            return message

        await self.app(scope, bounded_receive, send)


def _too_large(limit: int) -> str:
    return f"the body is larger than {limit:,} bytes"
