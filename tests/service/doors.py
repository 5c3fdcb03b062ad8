"""A served application that may reach outside, whose jobs run in this process; and servers outside of it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import create_engine, text

from model_store.blobs.s3_objects import S3Objects
from model_store.repositories import LeaseRepository
from runtime.broker import Broker
from runtime.settings import Settings
from tests.api.conftest import settings_for
from tests.api.front import Caller, Front
from tests.service.s3_server import BUCKET, CREDENTIALS
from worker.execution import new_worker_name, run_claimed
from worker.runtime import Runtime
from worker.tasks import task_of


@dataclass
class Door:
    """`do` submits a request and carries the job to its end, or as far as it goes."""

    front: Front
    caller: Caller
    runtime: Runtime
    web: "Outside"  # the server outside, for files and for FHIR
    bucket: str  # a folder outside, such as s3://bucket/lake/
    objects: S3Objects
    database: str  # URL of the database outside, which is called "warehouse"

    def put(self, name: str, data: bytes) -> str:
        """An object in the bucket; its address."""
        with self.objects.create(f"{self.bucket.removeprefix(f's3://{BUCKET}/')}{name}") as file:
            file.write(data)
        return f"{self.bucket}{name}"

    def limited(self, **changes: Any) -> "Door":
        """The same with other settings where jobs run."""
        settings = Settings(**self.runtime.settings.model_dump() | changes)
        return replace(self, runtime=replace(self.runtime, settings=settings))

    @property
    def http(self) -> httpx.Client:
        return self.caller.http

    def do(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 202, answer.text
        return self.run(answer.json()["id"])

    def run(self, job_id: str) -> dict[str, Any]:
        """This one, whoever else's turn it would be."""
        with self.runtime.database.session_scope() as session:
            claim = LeaseRepository(session).claim(job_id, new_worker_name(), self.runtime.settings.lease_seconds)
        assert claim is not None
        run_claimed(self.runtime, claim, task_of)
        return self.job(job_id)

    def left(self, job: dict[str, Any]) -> list[str]:
        """What is in the store of what a job has fetched."""
        return list(self.runtime.store.list(f"uploads/{job['request']['fetch_id']}"))

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
def opened_door(folder: Path, s3_url: str, database: str) -> Iterator[Door]:
    """All there is may be read from, and written to; the S3 server is the environment's."""
    bucket = f"s3://{BUCKET}/lake/"
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_url}.items():
            patch.setenv(name, value)
        web = stack.enter_context(Outside(lambda _: Said(404)))
        key = new_key(folder / "smart.pem")
        reach: list[dict[str, Any]] = [
            {"kind": "objects", "url": bucket},
            {"kind": "postgres", "name": "warehouse", "url": database, "schemas": ["cdm", "results", "synthetic_*"]},
        ]
        smart = {"client_id": "us", "token_url": f"{web.url}/token", "key_file": str(key), "key_id": "one"}
        sources = [
            *reach,
            {"kind": "objects", "url": f"{web.url}/d/", "private": True},
            {"kind": "objects", "url": "https://localhost:9/d/"},
            {"kind": "fhir", "name": "hospital", "url": f"{web.url}/fhir", "private": True, **smart},
        ]
        listed: dict[str, Any] = {"sources": json.dumps(sources), "sinks": json.dumps(reach), "heartbeat_seconds": 0.05}
        listed |= {"reference_records": 2048, "reference_seconds": 1}
        settings = settings_for(folder, f"sqlite:///{folder / 'db.sqlite'}", **listed)
        front = stack.enter_context(Front(settings))
        services, broker = front.services, Broker(settings.resolved_redis_url)
        stack.callback(broker.close)
        runtime = Runtime(settings, services.database, services.store, broker)
        yield Door(front, front.as_owner("ada"), runtime, web, bucket, S3Objects(BUCKET), database)


def new_key(path: Path) -> Path:
    """A private key, as an operator would have made it."""
    key = ec.generate_private_key(ec.SECP384R1())
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(*kinds))
    return path


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

    do_GET = do_HEAD = do_POST = do_DELETE = _do  # noqa: N815 (the standard library's names)

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


def asked_of(url: str, query: str, schema: str = "public") -> list[tuple[Any, ...]]:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            connection.execute(text(f"set search_path to {schema}"))
            return [tuple(row) for row in connection.execute(text(query))]
    finally:
        engine.dispose()
