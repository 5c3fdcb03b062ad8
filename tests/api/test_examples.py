"""The examples for orchestrators, each where its orchestrator is installed; none is a dependency of the project.

They need nothing but the client, so that a machine that has only these can run them:
python -m pytest --noconftest -o addopts= tests/api/test_examples.py
"""

import asyncio
import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "client" / "examples"
JOB = {"id": "job_1", "state": "running", "error": None, "warnings": [], "result": {"model_id": "mdl_1"}}


class Service(ThreadingHTTPServer):
    """As much of the service as the examples ask for: one job, and a cohort of it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys: list[str] = []
        self.job: dict[str, Any] = dict(JOB)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self._say(200, {"n_records": 2} if self.path.startswith("/cohorts/") else self.server.job)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.keys.append(self.headers["Idempotency-Key"])
        self._say(202, self.server.job)

    def _say(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with Service() as made:
        monkeypatch.setenv("EHR_D3PM_URL", f"http://127.0.0.1:{made.server_address[1]}")
        monkeypatch.delenv("EHR_D3PM_KEY", raising=False)
        yield made
        made.shutdown()


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_python_and_told_of() -> None:
    told = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for file in EXAMPLES.glob("*.py"):
        compile(file.read_text(encoding="utf-8"), file.name, "exec")
        assert f"`{file.name}`" in told


def test_an_airflow_task_is_deferred_and_its_trigger_fires(service: Service) -> None:
    pytest.importorskip("airflow")
    module = example("airflow_operator")
    task = module.GenerateCohort(task_id="t", model_id="mdl_1", n=10, conditions={"all_of": "ICD10CM:E11"})
    deferred: dict[str, Any] = {}
    task.defer = lambda **said: deferred.update(said)
    for _ in range(2):  # the second is another try of the same task
        task.execute({"run_id": "r1"})
    assert service.keys == ["r1.t"] * 2
    trigger = deferred["trigger"]
    assert (deferred["method_name"], trigger.serialize()[1]) == ("finish", {"job_id": "job_1"})

    async def fired() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    service.job |= {"state": "failed", "error": {"type": "x", "detail": "why"}}
    (event,) = asyncio.run(fired())
    with pytest.raises(Exception, match="why"):
        task.finish({}, event)
    service.job |= {"state": "succeeded"}
    (event,) = asyncio.run(fired())
    assert task.finish({}, event) == "job_1"


def test_a_dagster_asset_tells_of_its_cohort(service: Service) -> None:
    dagster = pytest.importorskip("dagster")
    module = example("dagster_asset")
    service.job |= {"state": "succeeded"}
    url = f"http://127.0.0.1:{service.server_address[1]}"
    done = dagster.materialize(
        [module.synthetic_cohort], resources={"service": module.Service(url=url, model_id="mdl_1")}
    )
    told = done.get_asset_materialization_events()[0].materialization.metadata
    assert (told["cohort_id"].value, told["records"].value) == ("job_1", 2)
    assert service.keys == [f"dagster-{done.run_id}"]


def test_a_prefect_task_waits_for_its_job(service: Service) -> None:
    pytest.importorskip("prefect")
    module = example("prefect_flow")
    service.job |= {"state": "succeeded"}
    assert module.model.fn("ds_1", "run-1") == "mdl_1"
    assert service.keys == ["run-1-model"]
