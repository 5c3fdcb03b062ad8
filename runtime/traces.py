"""Traces for OpenTelemetry, from a request to the work it causes, if OTEL_EXPORTER_OTLP_ENDPOINT says where to.

What is open or has ended in this process is a span; a job's payload carries the trace on (`traceparent`, as W3C has it)
to whichever worker runs it. Spans leave as OTLP in its JSON form, by a thread that starts with the first of them: in a
process that forks, each child has its own. Nobody waits for a collector, and what it does not take is dropped.

Attributes are ids, words of ours and numbers: a name that is not in ATTRIBUTES raises, and codes have none.
"""

import json
import logging
import os
import re
import secrets
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote

log = logging.getLogger(__name__)
SERVER, CONSUMER, INTERNAL = 2, 5, 1  # kinds of spans, as OTLP numbers them
FAILED = 2  # of a span's status
ATTRIBUTES = frozenset(
    {
        *("http.request.method", "http.route", "http.response.status_code", "error.type"),
        *("ehr_d3pm.request_id", "ehr_d3pm.job_id", "ehr_d3pm.kind", "ehr_d3pm.attempt", "ehr_d3pm.outcome"),
        *("ehr_d3pm.part", "ehr_d3pm.records"),
    }
)
HEADER = "traceparent"
PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
SEND_SECONDS, TIMEOUT_SECONDS = 1.0, 5.0
MOST_WAITING, MOST_AT_ONCE = 4096, 512


@dataclass(frozen=True)
class Context:
    """Where in which trace: the parent of what comes next."""

    trace_id: str
    span_id: str
    is_recorded: bool = True  # whoever began the trace may have decided that nobody records it

    @property
    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_recorded):02x}"

    @classmethod
    def of(cls, header: object) -> "Context | None":
        """Of what somebody sent or stored; None if it is no context."""
        found = PARENT.match(header) if isinstance(header, str) else None
        if found is None or set(found[1]) == {"0"} or set(found[2]) == {"0"}:
            return None
        return cls(found[1], found[2], bool(int(found[3], 16) & 1))


current: ContextVar[Context | None] = ContextVar("trace", default=None)


def carried() -> dict[str, str]:
    """What a payload takes along of the trace at hand."""
    context = current.get()
    return {} if context is None else {HEADER: context.header}


@dataclass
class Span:
    """A piece of work with its beginning and, when `end` was called, its end."""

    name: str
    kind: int
    context: Context
    parent: Context | None
    attributes: dict[str, str | int] = field(default_factory=dict)
    failed: bool = False
    began_at: int = field(default_factory=time.time_ns)
    _began: int = field(default_factory=time.monotonic_ns)
    ended_at: int = 0

    def set(self, **attributes: str | int) -> None:
        """`job_id` is `ehr_d3pm.job_id`; of names with dots the dots are written `__`."""
        for name, value in attributes.items():
            full = name.replace("__", ".") if "__" in name else f"ehr_d3pm.{name}"
            if full not in ATTRIBUTES:
                raise ValueError(f"{full} is no attribute of spans; known are {', '.join(sorted(ATTRIBUTES))}")
            self.attributes[full] = value

    def end(self) -> None:
        """By the monotonic clock: whatever happens to the other one, nothing ends before it began."""
        self.ended_at = self.began_at + time.monotonic_ns() - self._began

    def told(self) -> dict[str, Any]:
        """As OTLP has it in JSON: ids in hexadecimal digits, whole numbers of 64 bits as texts."""
        told: dict[str, Any] = {
            "traceId": self.context.trace_id,
            "spanId": self.context.span_id,
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": str(self.began_at),
            "endTimeUnixNano": str(self.ended_at),
            "attributes": [_attribute(name, value) for name, value in self.attributes.items()],
        }
        if self.parent is not None:
            told["parentSpanId"] = self.parent.span_id
        return told | ({"status": {"code": FAILED}} if self.failed else {})


def _attribute(name: str, value: str | int) -> dict[str, Any]:
    return {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


class Tracer:
    """Without an endpoint it does nothing, and there are no contexts to carry."""

    def __init__(self, endpoint: str, headers: str = "", service: str = "ehr-d3pm") -> None:
        """`headers` as in OTEL_EXPORTER_OTLP_HEADERS: `name=value,name=value`, percent-encoded where needed."""
        self.url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else ""
        pairs = (pair.partition("=") for pair in headers.split(",") if "=" in pair)
        self._headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
        self._service = service
        self._waiting: deque[Span] = deque(maxlen=MOST_WAITING)
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0

    @contextmanager
    def span(self, name: str, kind: int = INTERNAL, parent: Context | None = None) -> Iterator[Span | None]:
        """A span around the block and the context of what is in it; None without an endpoint. Whatever the block raises
        is told by the name of its type."""
        if self.url == "":
            yield None
            return
        span = self.begin(name, kind, parent)
        token = current.set(span.context)
        try:
            yield span
        except BaseException as error:
            span.failed = True
            span.set(error__type=type(error).__name__)
            raise
        finally:
            current.reset(token)
            self.finish(span)

    def begin(self, name: str, kind: int = INTERNAL, parent: Context | None = None) -> Span:
        """A span that `finish` ends."""
        parent = parent or current.get()
        known = (secrets.token_hex(16), True) if parent is None else (parent.trace_id, parent.is_recorded)
        return Span(name, kind, Context(known[0], secrets.token_hex(8), known[1]), parent)

    def finish(self, span: Span) -> None:
        span.end()
        if not span.context.is_recorded:
            return
        if self._pid != os.getpid():  # the first of this process, which may be a fork of one that has a thread
            self._pid = os.getpid()
            self._waiting.clear()  # those of the other one are its own to send
            self._wake, self._stopping = threading.Event(), threading.Event()
            self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
            self._thread.start()
        self._waiting.append(span)

    def close(self) -> None:
        """Send what waits, for as long as one request may take."""
        if self._thread is not None and self._pid == os.getpid():
            self._stopping.set()
            self._wake.set()
            self._thread.join(TIMEOUT_SECONDS + 1)

    def _run(self) -> None:
        while True:
            self._wake.wait(SEND_SECONDS)
            stopping = self._stopping.is_set()
            while self._waiting:
                self._send([self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_AT_ONCE))])
            if stopping:
                return

    def _send(self, spans: list[Span]) -> None:
        body = json.dumps(_request(spans, {"service.name": self._service})).encode()
        try:
            request = urllib.request.Request(self.url, body, {"Content-Type": "application/json", **self._headers})
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
                pass
        except (OSError, ValueError, HTTPException) as error:  # away, no address at all, or no collector
            log.warning("traces were dropped", extra={"spans": len(spans), "reason": type(error).__name__})


def _request(spans: list[Span], resource: Mapping[str, str]) -> dict[str, Any]:
    told = {"scope": {"name": "ehr_d3pm"}, "spans": [span.told() for span in spans]}
    known = [_attribute(name, value) for name, value in resource.items()]
    return {"resourceSpans": [{"resource": {"attributes": known}, "scopeSpans": [told]}]}


class Steps:
    """The steps of a job as spans, each from its beginning to that of the next."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._span: Span | None = None

    def begin(self, name: str) -> None:
        self.end()
        if self._tracer.url != "":
            self._span = self._tracer.begin(name)

    def end(self) -> None:
        if self._span is not None:
            self._tracer.finish(self._span)
            self._span = None


NO_TRACES = Tracer("")
