"""Traces: one from a request to the work it causes, in the form that OpenTelemetry's collectors take, without codes."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from runtime.traces import CONSUMER, HEADER, NO_TRACES, SERVER, Context, Tracer, carried, current
from tests.api.front import Front
from tests.service.fixtures import NewUrl, new_stand
from tests.service.servers import PATIENCE_SECONDS, free_port, wait_until
from tests.service.stand import long_csv

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                collector.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def spans(self) -> list[dict[str, Any]]:
        """All that have come, with their attributes as one mapping."""
        found = []
        for body in list(self.bodies):
            for resource in json.loads(body)["resourceSpans"]:
                assert resource["resource"]["attributes"][0]["value"] == {"stringValue": "ehr-d3pm"}
                found += [span for scope in resource["scopeSpans"] for span in scope["spans"]]
        return [span | {"known": {a["key"]: str(*a["value"].values()) for a in span["attributes"]}} for span in found]

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans() if span["name"] == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


def test_from_the_request_to_the_work_and_what_that_causes(collector: Collector, new_url: NewUrl) -> None:
    elsewhere = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": "x-team=a, x-key = b%20c"}
    with new_stand(new_url("sqlite"), elsewhere) as stand:
        stand.worker()
        with Front(stand.settings) as front, httpx.Client(base_url=front.url, timeout=60) as http:
            sent = {HEADER: f"00-{TRACE}-{SPAN}-01"}
            files = {"file": ("ward.csv", long_csv())}
            job = http.post("/datasets", files=files, headers=sent).raise_for_status().json()
            assert HEADER not in job["request"]
            learn = {"dataset_id": stand.succeed(job["id"])["dataset_id"], "generator": "independent"}
            training = http.post("/train", json=learn).raise_for_status().json()
            model = stand.succeed(training["id"])["model_id"]
            asked = {"model_id": model, "n": 3000, "conditions": {"all_of": ["ICD9DX:001"]}}
            cohort = http.post("/generate", json=asked, headers=sent).raise_for_status().json()
            evaluation = stand.job(stand.succeed(cohort["id"])["evaluate_job_id"])
            http.get("/healthz")
            wait_until(lambda: collector.named("job generate"), "the last span")
            wait_until(lambda: len(collector.named("part")) == 3, "the parts")
            wait_until(lambda: collector.named("POST /generate"), "the request")
    (request,) = collector.named("POST /datasets")
    (ingest,) = collector.named("job ingest")
    assert (request["traceId"], request["parentSpanId"], request["kind"]) == (TRACE, SPAN, SERVER)
    assert (ingest["traceId"], ingest["parentSpanId"], ingest["kind"]) == (TRACE, request["spanId"], CONSUMER)
    assert request["known"]["http.response.status_code"] == "202" and ingest["known"]["ehr_d3pm.outcome"] == "succeeded"
    assert ingest["known"]["ehr_d3pm.job_id"] == job["id"]
    assert int(ingest["endTimeUnixNano"]) > int(request["startTimeUnixNano"])
    steps = [span["name"] for span in collector.spans() if span.get("parentSpanId") == ingest["spanId"]]
    assert steps == ["read", "encode", "store"]
    # what a job causes belongs to the trace that caused the job; a request without a trace begins one
    (generate,) = collector.named("job generate")
    assert Context.of(evaluation.payload[HEADER]) == Context(TRACE, generate["spanId"])
    assert collector.named("job train")[0]["traceId"] != TRACE
    assert not [span for span in collector.spans() if "healthz" in span["name"]]
    assert not any(secret in body for body in collector.bodies for secret in (b"ICD9", b"ward", b"conditions"))
    values = {value for span in collector.spans() for value in span["known"].values()}
    assert not values & {"001", "ICD9DX:001"}
    assert all(sent["x-team"] == "a" and sent["x-key"] == "b c" for sent in collector.headers)


def test_contexts() -> None:
    known = Context.of(f"00-{TRACE}-{SPAN}-01")
    assert known == Context(TRACE, SPAN) and known.header == f"00-{TRACE}-{SPAN}-01"
    assert Context.of(f"cc-{TRACE}-{SPAN}-01-of a later version") == known
    for wrong in (None, "", 7, f"00-{TRACE}-{SPAN}", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE.upper()}-{SPAN}-01"):
        assert Context.of(wrong) is None
    not_recorded = Context.of(f"00-{TRACE}-{SPAN}-00")
    assert not_recorded is not None and not not_recorded.is_recorded


def test_what_its_beginner_does_not_record_nobody_records(collector: Collector) -> None:
    tracer = Tracer(collector.url)
    with tracer.span("request", SERVER, Context(TRACE, SPAN, is_recorded=False)):
        assert carried()[HEADER].startswith(f"00-{TRACE}-") and carried()[HEADER].endswith("-00")
    with tracer.span("another"):
        pass
    tracer.close()
    assert [span["name"] for span in collector.spans()] == ["another"]


def test_without_an_endpoint_nothing_is_carried_and_nobody_is_asked() -> None:
    with NO_TRACES.span("request", SERVER, Context(TRACE, SPAN)) as span:
        assert span is None and carried() == {} and current.get() is None
    NO_TRACES.close()


def test_a_failure_is_told_by_its_type_and_a_collector_that_is_away_by_nothing(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    for url in (collector.url, f"http://127.0.0.1:{free_port()}", "no address"):
        tracer = Tracer(url)
        with pytest.raises(ValueError, match="patient 4711"), tracer.span("part"):
            raise ValueError("patient 4711")
        tracer.close()
    (span,) = collector.spans()
    assert span["status"] == {"code": 2} and span["known"] == {"error.type": "ValueError"}
    assert b"4711" not in collector.bodies[0]
    assert caplog.text.count("traces were dropped") == 2


def test_attributes_are_those_we_know(collector: Collector) -> None:
    tracer = Tracer(collector.url)
    with pytest.raises(ValueError, match=r"ehr_d3pm\.code is no attribute"):
        tracer.begin("part").set(code="ICD10CM:E84")


FORKS = """
import os, sys
from runtime.traces import Tracer
tracer = Tracer(sys.argv[1])
with tracer.span("of the parent"):
    pass
if (child := os.fork()) == 0:
    with tracer.span("of the child"):
        pass
    tracer.close()
    os._exit(0)
os.waitpid(child, 0)
tracer.close()
"""


def test_a_forked_child_sends_its_own(collector: Collector) -> None:
    subprocess.run([sys.executable, "-c", FORKS, collector.url], check=True, timeout=PATIENCE_SECONDS)
    assert sorted(span["name"] for span in collector.spans()) == ["of the child", "of the parent"]
