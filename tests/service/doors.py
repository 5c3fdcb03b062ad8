"""A served application that may reach outside, whose jobs run in this process; and servers outside of it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import create_engine, text

from runtime.broker import Broker
from tests.api.conftest import settings_for
from tests.api.front import Caller, Front
from worker.execution import execute
from worker.runtime import Runtime
from worker.tasks import task_of


@dataclass
class Door:
    """`do` submits a request and carries the job to its end, or as far as it goes."""

    front: Front
    caller: Caller
    runtime: Runtime

    @property
    def http(self) -> httpx.Client:
        return self.caller.http

    def do(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 202, answer.text
        return self.run(answer.json()["id"])

    def run(self, job_id: str) -> dict[str, Any]:
        execute(self.runtime, job_id, task_of)
        return self.job(job_id)

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.http.get(f"/jobs/{job_id}").raise_for_status().json())

    def refused(self, path: str, **body: Any) -> str:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 422, answer.text
        return str(answer.json()["detail"])

    def uploaded(self, files: dict[str, bytes], **form: Any) -> dict[str, Any]:
        """The dataset of an upload of the same files."""
        parts = [("file", (name, data)) for name, data in files.items()]
        answer = self.http.post("/datasets", files=parts, data=form).raise_for_status()
        return self.dataset(self.run(answer.json()["id"]))

    def dataset(self, job: dict[str, Any]) -> dict[str, Any]:
        assert job["state"] == "succeeded", job["error"]
        return dict(self.http.get(f"/datasets/{job['result']['dataset_id']}").json())


@contextmanager
def door(folder: Path, owner: str = "ada", **settings: Any) -> Iterator[Door]:
    listed = {name: json.dumps(value) if isinstance(value, list) else value for name, value in settings.items()}
    with Front(settings_for(folder, f"sqlite:///{folder / 'db.sqlite'}", **listed)) as front:
        services, broker = front.services, Broker(front.settings.resolved_redis_url)
        runtime = Runtime(front.settings, services.database, services.store, broker)
        yield Door(front, front.as_owner(owner), runtime)
        broker.close()


@dataclass
class Asked:
    """A request that came to a server outside."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Said:
    """Its answer. `breaks_after`: the connection is closed after so many bytes of the body."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    breaks_after: int | None = None


class Outside(ThreadingHTTPServer):
    """Answers as `answer` says, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, answer: Callable[[Asked], Said]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.asked: list[Asked] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def count(self, method: str, path: str) -> int:
        return sum(each.method == method and each.path.startswith(path) for each in self.asked)

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Outside

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        asked = Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        self.server.asked.append(asked)
        said = self.server.answer(asked)
        self.send_response(said.status)
        for name, value in {"Content-Length": str(len(said.body)), **said.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said.body if said.breaks_after is None else said.body[: said.breaks_after])
        self.close_connection = True

    do_GET = do_HEAD = do_POST = do_DELETE = _do

    def log_message(self, *_: Any) -> None: ...


def load_cdm(url: str, schema: str, tables: dict[str, bytes], also: tuple[str, ...] = ()) -> None:
    """CSV tables in a schema of Postgres."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text(f"create schema if not exists {schema}"))
            for file, data in tables.items():
                table, names = file.removesuffix(".csv"), data.split(b"\n", 1)[0].decode().strip().split(",")
                columns = ", ".join(f"{name} {_type(name)}" for name in names)
                connection.execute(text(f"create table {schema}.{table} ({columns})"))
                cursor: Any = connection.connection.cursor()
                with cursor, cursor.copy(f"copy {schema}.{table} from stdin (format csv, header true)") as copy:
                    copy.write(data)
            for statement in also:
                connection.execute(text(statement))
    finally:
        engine.dispose()


def _type(name: str) -> str:
    if name in ("domain_id", "vocabulary_id", "concept_class_id"):
        return "varchar(20)"
    endings = {"_id": "bigint", "_date": "date", "year_of_birth": "integer", "value_as_number": "numeric"}
    return next((kind for end, kind in endings.items() if name.endswith(end)), "varchar(255)")


def asked_of(url: str, query: str) -> list[tuple[Any, ...]]:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]
    finally:
        engine.dispose()
