"""Object stores: a real server process, and a service whose parts are on other hosts."""

import secrets
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from model_store.blobs import S3Store
from tests.service.doors import Door, Said, opened_door
from tests.service.fixtures import FLEET, NewUrl, new_stand, s3_of_the_fleet
from tests.service.s3_server import BUCKET, CREDENTIALS, Proxy, S3Server
from tests.service.stand import Stand


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


@pytest.fixture
def distributed_stand(new_url: NewUrl, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    """As on several hosts: Postgres, a broker over TCP, and an object store."""
    environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_server.url}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    environment["STORE_URL"] = f"s3://{BUCKET}/{secrets.token_hex(6)}"
    with new_stand(new_url("postgres"), environment) as stand:
        stand.worker()
        yield stand


@pytest.fixture(scope="session")
def shared_door(new_url: NewUrl, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    # The environment names its server for the rest of the session: stands of a fleet must find theirs there.
    server = s3_of_the_fleet() if FLEET else s3_server
    with opened_door(tmp_path_factory.mktemp("door"), server.url, new_url("postgres")) as door:
        yield door


@pytest.fixture
def door(shared_door: Door, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """An application that may reach outside, for an owner with nothing yet; tries follow each other at once."""
    monkeypatch.setattr("worker.fetching.web.PAUSE_SECONDS", 0.01)
    shared_door.web.asked.clear()
    own = replace(shared_door, bucket=f"{shared_door.bucket}{secrets.token_hex(4)}/")
    own.caller = shared_door.front.as_owner(f"owner-{secrets.token_hex(4)}")
    yield own
    shared_door.web.answer = lambda _: Said(404)
