"""Servers and stands. What takes seconds to start is started once for all test files of a process: fixtures with a
wider scope and parameters would be made anew whenever the parameter changes, so these are kept by kind of database.

With TEST_FLEET=1 (`make test-fleet`) there is but one kind: Postgres, Valkey over TCP and an S3 server.
"""

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.service.s3_server import BUCKET, CREDENTIALS, S3Server
from tests.service.servers import Postgres, Valkey, new_database
from tests.service.stand import Stand

FLEET = os.environ.get("TEST_FLEET") == "1"
DATABASES = ("postgres",) if FLEET else ("sqlite", "postgres")
NewUrl = Callable[[str], str]
# Stands of their own for what does not depend on the database: a worker's start takes seconds.
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
# for tests that look at the files of a store or at SQLite itself, and have a law that holds for one only
ON_ONE_MACHINE = pytest.mark.skipif(FLEET, reason="of a store or a database that is a file")


@cache
def s3_of_the_fleet() -> S3Server:
    """One for all tests of a process; it ends with it. What opens a store here finds it, too."""
    server = S3Server()
    os.environ.update({**CREDENTIALS, "AWS_ENDPOINT_URL": server.url})
    return server


def fleet_variables() -> dict[str, str]:
    """Of a stand or an API that has nothing on this machine."""
    server = s3_of_the_fleet()
    store = f"s3://{BUCKET}/{secrets.token_hex(6)}"
    return {**CREDENTIALS, "AWS_ENDPOINT_URL": server.url, "STORE_URL": store}


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def new_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NewUrl:
    """The URL of an empty database of a kind."""

    def made(kind: str) -> str:
        if kind == "sqlite" and not FLEET:
            return f"sqlite:///{tmp_path_factory.mktemp('db') / 'test.sqlite'}"
        name = f"test_{secrets.token_hex(6)}"
        if (url := os.environ.get("TEST_DATABASE_URL")) is not None:
            return new_database(url, name)
        server: Postgres = request.getfixturevalue("postgres")
        return server.new_database(name)

    return made


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, new_url: NewUrl) -> str:
    return new_url(request.param)


@pytest.fixture
def stand(database_url: str) -> Iterator[Stand]:
    """A stand of one's own, for tests that break things. On SQLite + Valkey and on Postgres + Valkey."""
    with new_stand(database_url) as stand:
        yield stand


@pytest.fixture(scope="session")
def stand_of(new_url: NewUrl) -> Iterator[Callable[[str], Stand]]:
    """The stand with a worker that all well-behaved tests on a kind of database share."""
    stands: dict[str, Stand] = {}
    with ExitStack() as stack:

        def of(kind: str) -> Stand:
            if kind not in stands:
                stands[kind] = stack.enter_context(new_stand(new_url(kind)))
            if not any(worker.is_up() for worker in stands[kind].workers):
                stands[kind].worker()
            return stands[kind]

        yield of


@pytest.fixture(params=DATABASES)
def shared_stand(request: pytest.FixtureRequest, stand_of: Callable[[str], Stand]) -> Stand:
    """Other tests have left things here: look only at your own."""
    return stand_of(request.param)


@pytest.fixture
def sqlite_stand(stand_of: Callable[[str], Stand]) -> Stand:
    """For what does not depend on the database."""
    return stand_of("sqlite")


@pytest.fixture
def postgres_stand(stand_of: Callable[[str], Stand]) -> Stand:
    """For the same: a file whose tests take turns has walked its way on both."""
    return stand_of("postgres")


@contextmanager
def new_stand(url: str, elsewhere: dict[str, str] | None = None) -> Iterator[Stand]:
    """`elsewhere`: variables of a stand whose parts are on other hosts, the broker too."""
    if FLEET and elsewhere is None:
        elsewhere = fleet_variables()
    # a short path: unix sockets have little room for their name
    with tempfile.TemporaryDirectory(prefix="ehr", ignore_cleanup_errors=True) as folder:
        valkey = Valkey(Path(folder) / "v")
        extra = {} if elsewhere is None else {**elsewhere, "REDIS_URL": valkey.listen()}
        stand = Stand(Path(folder) / "s", url, valkey, extra)
        try:
            yield stand
        finally:
            stand.close()
            valkey.stop()
