"""The OpenAPI document is a promise, and no request that follows it may make the service fail."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from ehr.conditions import MOST_MEMBERS
from tests.api.conftest import settings_for
from tests.api.front import Front
from tests.api.fuzzing import FAILED_LOGINS, failures_of
from tests.service.servers import PATIENCE_SECONDS

OPERATIONS = {
    "create_dataset", "create_dataset_by_reference", "list_places", "export_cohort", "list_datasets", "get_dataset",
        "list_dataset_codes",
        "list_dataset_labs", "delete_dataset",
    "train_model", "list_models", "get_model", "describe_model", "list_model_codes", "download_model_bundle",
    "delete_model", "get_model_exposure", "list_audit", "get_budgets",
    "generate_cohort", "estimate_cohort", "probe_model", "list_withheld", "list_releases", "list_keys",
    "list_cohort_parts", "download_cohort_part",
    "list_jobs", "get_job", "get_job_log", "cancel_job", "retry_job", "follow_job",
    "create_webhook", "list_webhooks", "get_webhook", "delete_webhook", "rotate_webhook", "enable_webhook",
    "test_webhook", "list_webhook_deliveries", "replay_webhook_delivery", "import_model",
    "get_dataset_erasure", "list_dataset_dependants", "read_cohort_file",
    "list_cohorts", "get_cohort", "download_cohort", "delete_cohort",
    "release_cohort", "evaluate_cohort", "get_report", "get_report_page", "get_report_schema",
    "get_health", "get_readiness", "get_metrics",
}  # fmt: skip


def test_operation_ids_are_stable(open_front: Front) -> None:
    document = open_front.app.openapi()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert {operation["operationId"] for operation in operations} == OPERATIONS
    for operation in operations:
        assert operation["summary"] and operation["description"] and operation["tags"]
        assert "application/problem+json" in operation["responses"]["422"]["content"]
    assert "HTTPValidationError" not in str(document)


def test_every_reference_leads_somewhere(open_front: Front) -> None:
    document = open_front.app.openapi()
    found = set(re.findall(r"'\$ref': '([^']*)'", str(document)))
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert found and found <= known


def unbounded(schema: dict[str, Any], known: dict[str, Any], place: str) -> Iterator[str]:
    """Numbers without a largest one and lists of any length, of what a request may hold."""
    if "$ref" in schema:
        yield from unbounded(known[schema["$ref"].rsplit("/", 1)[1]], known, place)
    if schema.get("type") in ("integer", "number") and not {"maximum", "exclusiveMaximum"} & schema.keys():
        yield place
    if schema.get("type") == "array":
        yield from () if "maxItems" in schema else [place]
        yield from unbounded(schema["items"], known, f"{place}[]")
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from unbounded(each, known, place)
    for name, each in schema.get("properties", {}).items():
        yield from unbounded(each, known, f"{place}.{name}")


def test_nothing_that_can_be_asked_for_is_without_an_upper_bound(open_front: Front) -> None:
    """Settings of generators, which differ by generator: tests/engine/test_bounds.py."""
    document = open_front.app.openapi()
    asked = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for each in operation.get("parameters", []):
                asked[f"{method} {path} {each['name']}"] = each["schema"]
            for each in operation.get("requestBody", {}).get("content", {}).values():
                asked[f"{method} {path}"] = each["schema"]
    known = document["components"]["schemas"]
    assert [each for place, schema in asked.items() for each in unbounded(schema, known, place)] == []
    several = {"any_of": [["A:*"] * (MOST_MEMBERS // 2)] * 3}
    for body, words in (({"conditions": several}, f"at most {MOST_MEMBERS:,}"), ({"n": 2**31 + 1}, "2147483648")):
        refused = httpx.post(f"{open_front.url}/generate", json={"model_id": "mdl_x", "n": 1} | body)
        assert refused.status_code == 422 and words in refused.json()["detail"]


def test_examples_are_valid(open_front: Front) -> None:
    from app.schemas.requests import EvaluateRequest, GenerateRequest, ReleaseRequest, TrainRequest

    for model in (EvaluateRequest, GenerateRequest, ReleaseRequest, TrainRequest):
        for example in model.model_json_schema()["examples"]:
            model.model_validate(example)


def test_docs_page(open_front: Front) -> None:
    """It has every operation, and nothing that is elsewhere: networks without a way out have it too."""
    page = open_front.get("/docs")
    assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
    assert {name for name in OPERATIONS if f'id="{name}"' in page.text} == OPERATIONS
    assert set(re.findall(r'(?:src|href)="(?!/|#|\?)([^"]*)', page.text)) == set()
    assert open_front.get("/openapi.json").json()["info"]["title"] == "EHR-D3PM"


def test_every_answer_carries_its_request_id(open_front: Front) -> None:
    sent = open_front.get("/healthz", headers={"X-Request-ID": "abc-1"})
    assert sent.headers["x-request-id"] == "abc-1"
    for harmful in ('x" injected', "x" * 100, "a b"):
        made = open_front.get("/healthz", headers={"X-Request-ID": harmful}).headers["x-request-id"]
        assert re.fullmatch(r"[0-9a-f]{16}", made)


def test_metrics(open_front: Front) -> None:
    open_front.get(f"/jobs/job_{'0' * 32}")
    httpx.request("BREW", f"{open_front.url}/some/raw/path", timeout=PATIENCE_SECONDS)
    text = open_front.get("/metrics").text
    assert 'ehr_d3pm_http_requests_total{method="GET",route="/jobs/{job_id}",status="404"}' in text
    assert 'ehr_d3pm_jobs{state="queued"}' in text
    assert "raw" not in text and "BREW" not in text


def test_schemathesis_finds_nothing_wrong(tmp_path: Path) -> None:
    """Valid and invalid requests to every operation; benchmarks.face sends more of them."""
    url = f"sqlite:///{tmp_path / 'fuzz.sqlite'}"
    with Front(settings_for(tmp_path, url, failed_logins=FAILED_LOGINS)) as front:
        assert failures_of(front.app.openapi(), front.url, front.key("fuzzer"), examples=5) == set()
