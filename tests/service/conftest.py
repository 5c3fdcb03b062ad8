"""Every test that takes a `stand` runs on SQLite + Valkey and on Postgres + Valkey."""

import os
import secrets
import tempfile
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from model_store.blobs import S3Store
from tests.service.s3_server import BUCKET, CREDENTIALS, Proxy, S3Server
from tests.service.servers import Postgres, Valkey, new_database
from tests.service.stand import Stand

DATABASES = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def s3_proxy(s3_server: S3Server) -> Iterator[Proxy]:
    proxy = Proxy(s3_server)
    yield proxy
    proxy.close()


def s3_at(endpoint: str, prefix: str = "", **options: Any) -> S3Store:
    """A store as a process has it whose environment names this endpoint."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}.items():
            patch.setenv(name, value)
        store = S3Store(f"s3://{BUCKET}/{prefix or secrets.token_hex(6)}", **options)
        store.requests.client._get_credentials()  # credentials are read when they are first needed
    return store


@pytest.fixture(scope="session")
def s3_connected(s3_server: S3Server) -> S3Store:
    return s3_at(s3_server.url)


@pytest.fixture
def s3_store(s3_connected: S3Store) -> S3Store:
    """A folder of a real server; making a client takes a second, so all tests have one."""
    return s3_beside(s3_connected)


def s3_beside(store: S3Store) -> S3Store:
    other = copy(store)
    other.prefix = f"{secrets.token_hex(6)}/"
    return other


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return _fresh_url(request, request.param, tmp_path)


@pytest.fixture
def stand(request: pytest.FixtureRequest, database_url: str) -> Iterator[Stand]:
    """A stand of one's own, for tests that break things."""
    yield from _stand(database_url)


@pytest.fixture(scope="module", params=DATABASES)
def shared_stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A stand with a worker for all well-behaved tests of a module: starting one costs seconds."""
    url = _fresh_url(request, request.param, tmp_path_factory.mktemp("db"))
    for stand in _stand(url):
        stand.worker()
        yield stand


@pytest.fixture
def distributed_stand(
    request: pytest.FixtureRequest, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stand]:
    """As on several hosts: Postgres, a broker over TCP, and an object store."""
    environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_server.url}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    environment["STORE_URL"] = f"s3://{BUCKET}/{secrets.token_hex(6)}"
    for stand in _stand(_fresh_url(request, "postgres", tmp_path), environment):
        stand.worker()
        yield stand


def _fresh_url(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder / 'test.sqlite'}"
    name = f"test_{secrets.token_hex(6)}"
    if (url := os.environ.get("TEST_DATABASE_URL")) is not None:
        return new_database(url, name)
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database(name)


def _stand(url: str, extra: dict[str, str] | None = None) -> Iterator[Stand]:
    """`extra` variables mean that everything is elsewhere, the broker too."""
    # a short path: unix sockets have little room for their name
    with tempfile.TemporaryDirectory(prefix="ehr", ignore_cleanup_errors=True) as folder:
        valkey = Valkey(Path(folder) / "v")
        extra = {} if extra is None else {**extra, "REDIS_URL": valkey.listen()}
        stand = Stand(Path(folder) / "s", url, valkey, extra)
        try:
            yield stand
        finally:
            stand.close()
            valkey.stop()
