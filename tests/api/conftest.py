"""A served application for all tests, on SQLite and on Postgres. Each test is another owner, so none sees another's."""

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from model_store import migrate
from runtime.settings import Settings
from tests.api.front import Caller, Front
from tests.service.fixtures import DATABASES, FLEET, NewUrl, fleet_variables

# small enough to be passed in a test
LIMITS: dict[str, Any] = {
    "max_upload_bytes": 3_000_000,
    "max_inflated_bytes": 20_000_000,
    "max_body_bytes": 100_000,
    "max_records": 1_000_000,
    "sweep_seconds": 0.2,
}


def settings_for(folder: Path, url: str, **changes: Any) -> Settings:
    migrate.upgrade(url)
    if FLEET:
        changes = {"store_url": fleet_variables()["STORE_URL"]} | changes
    # a socket at which nobody listens: jobs stay queued
    return Settings(
        data_dir=folder, database_url=url, redis_url=f"redis+socket://{folder}/nobody.sock", **LIMITS | changes
    )


@pytest.fixture(scope="session")
def front_of(new_url: NewUrl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Front]]:
    """The front that all tests on a kind of database share."""
    fronts: dict[str, Front] = {}
    with ExitStack() as stack:

        def of(kind: str) -> Front:
            if kind not in fronts:
                settings = settings_for(tmp_path_factory.mktemp("data"), new_url(kind))
                fronts[kind] = stack.enter_context(Front(settings))
                fronts[kind].key("someone")  # keys are configured: nothing is open
            return fronts[kind]

        yield of


@pytest.fixture(params=DATABASES)
def front(request: pytest.FixtureRequest, front_of: Callable[[str], Front]) -> Front:
    return front_of(request.param)


@pytest.fixture
def caller(front: Front) -> Caller:
    """An owner who has everything to themselves, with every scope."""
    return front.as_owner(f"owner-{secrets.token_hex(4)}")


@pytest.fixture
def stranger(front: Front) -> Caller:
    return front.as_owner(f"stranger-{secrets.token_hex(4)}")


@pytest.fixture(scope="module")
def open_front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """No key is configured."""
    folder = Path(tempfile.mkdtemp(prefix="ehr"))
    with Front(settings_for(folder, f"sqlite:///{folder / 'open.sqlite'}")) as front:
        yield front


@pytest.fixture
def sqlite_caller(request: pytest.FixtureRequest, open_front: Front) -> Caller:
    """One database is enough for what happens on the client's side."""
    return open_front.as_owner(f"{request.node.name[:30]}-{secrets.token_hex(4)}")
