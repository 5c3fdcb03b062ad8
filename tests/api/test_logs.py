"""Logs are JSON and never contain codes, record ids, secrets or what a client typed into a path."""

import io
import json
import logging

from runtime.logs import JsonFormatter
from tests.api.front import Caller, Front
from tests.service.servers import wait_until


def test_no_codes_records_or_secrets(front: Front, caller: Caller) -> None:
    caller.http.headers["X-Request-ID"] = "of-this-test"
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        table = b"record_id,vocabulary,code\nrecord-4711,ICD10CM,E84\n"
        caller.http.post("/datasets", files={"file": ("ward-7.csv", table)})
        model = caller.model()
        for code in ("ICD10CM:E84", "ICD10CM:E85"):
            caller.http.post("/generate", json={"model_id": model, "n": 5, "conditions": {"all_of": [code]}})
        caller.http.get("/jobs/ICD10CM:E84")
        caller.http.get("/record-4711", params={"search": "ICD10CM:E84"})
        caller.http.get(f"/cohorts/{caller.cohort([[[0, 2]]])}/records")
        # a request's line is written after its answer
        wait_until(lambda: stream.getvalue().count('"request_id": "of-this-test", "method"') == 6, "six lines")
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
    text = stream.getvalue()
    lines = [json.loads(line) for line in text.splitlines()]
    ours = [line for line in lines if line["logger"].startswith(("app", "model_store"))]
    told = json.dumps(ours)
    for secret in ("E84", "E85", "record-4711", "ward-7", caller.key):
        assert secret not in told


def test_exceptions_are_places_not_words() -> None:
    try:
        raise ValueError("patient 4711")
    except ValueError as error:
        record = logging.LogRecord(
            "x", logging.ERROR, "f", 1, "failed", None, (type(error), error, error.__traceback__)
        )
    told = json.loads(JsonFormatter().format(record))
    assert told["exception"] == "ValueError" and "test_logs.py" in told["at"]
    assert "4711" not in json.dumps(told)
