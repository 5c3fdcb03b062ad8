"""Requests that follow the OpenAPI document, and some that do not, against all checks that schemathesis has."""

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import schemathesis
import uvicorn
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import load_all_checks

from app.main import create_app
from benchmarks._harness import Figures, progress_bar, show
from model_store import migrate
from model_store.repositories import KeyRepository
from model_store.repositories.access import SCOPES
from runtime.settings import Settings

NOT_ASKED = ["/readyz", "/jobs/{job_id}/events"]  # nobody listens at the broker's socket; a stream has no end
START_SECONDS = 60


def schema_failures(figures: Figures, quick: bool) -> None:
    """On a service of its own, empty, with a key that may do all there is."""
    load_all_checks()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        url = f"sqlite:///{folder / 'fuzzed.sqlite'}"
        migrate.upgrade(url)
        broker = f"redis+socket://{folder}/nobody.sock"
        app = create_app(Settings(data_dir=folder, database_url=url, redis_url=broker, log_level="ERROR"))
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            failures = _fuzz(app.openapi(), f"http://127.0.0.1:{port}", _key(app), 3 if quick else 50)
        finally:
            server.should_exit = True
            thread.join(10)
    if failures:
        show("schemathesis", ["operation", "failure"], sorted(failures)[:40])
    figures.add("schemathesis.failures", len(failures), "kinds, by operation")


def _key(app: FastAPI) -> str:
    with app.state.services.database.session_scope() as session:
        secret: str = KeyRepository(session).create("fuzzer", "fuzzer", SCOPES)[1]
    return secret


def _fuzz(document: dict[str, Any], url: str, key: str, examples: int) -> set[tuple[str, str]]:
    """(operation, first line of what is wrong)."""
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url, headers={"Authorization": f"Bearer {key}"})
    # a request can have the right form and ask for what cannot be: a code that no model knows, a file that is none
    accepted = schema.config.checks.positive_data_acceptance
    accepted.expected_statuses = [*accepted.expected_statuses, "422"]
    operations: list[Any] = [result.ok() for result in schema.exclude(path=NOT_ASKED).get_all_operations()]  # type: ignore[union-attr]
    found: set[tuple[str, str]] = set()
    with progress_bar("operations") as told:
        for number, operation in enumerate(operations):
            told(number, len(operations))
            _try(operation, examples, found)
    return found


def _try(operation: Any, examples: int, found: set[tuple[str, str]]) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        try:
            case.call_and_validate()
        except BaseExceptionGroup as several:
            for error in several.exceptions:
                found.add((operation.label, str(error).strip().splitlines()[0][:100]))
        except AssertionError as error:
            found.add((operation.label, str(error).strip().splitlines()[0][:100]))

    run()
