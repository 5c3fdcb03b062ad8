"""Two versions on one database: each works with the schema and the payloads of the other, or says why not."""

import httpx
import pytest
from sqlalchemy import text, update

from ehr.errors import SchemaError
from model_store import migrate
from model_store.schema import OLDEST_SCHEMA
from model_store.tables import Job
from runtime.broker import WorkerFacts
from tests.api.front import Front
from tests.service.stand import Stand, long_csv

LATER = "0099"


def pretend(stand: Stand, revision: str, oldest_code: str | None = None) -> None:
    """A later version has been here."""
    with stand.database.session_scope() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :to"), {"to": revision})
        if oldest_code is not None:
            session.execute(text("UPDATE schema_support SET oldest_code = :to"), {"to": oldest_code})


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_worker_beside_a_later_version(stand: Stand) -> None:
    pretend(stand, LATER)
    migrate.upgrade(stand.url)  # nothing this version could do
    job_id = stand.ingest(long_csv(), publish=False)
    payload = stand.job(job_id).payload | {"of_a_later_version": 1}
    payload["files"][0]["also"] = True
    with stand.database.session_scope() as session:
        session.execute(update(Job).where(Job.id == job_id).values(payload=payload))
    stand.worker()
    with Front(stand.settings) as front:
        assert httpx.get(f"{front.url}/readyz").status_code == 200
        stand.succeed(job_id)
        pretend(stand, LATER, oldest_code=LATER)  # what this version needs is gone
        answer = httpx.get(f"{front.url}/readyz")
        assert answer.status_code == 503 and "start a newer version" in answer.json()["checks"]["schema"]
        assert answer.json()["checks"]["database"] == "ok"
    refused = stand.worker()
    assert refused.process.wait(90) == 1
    assert "does not start" in refused.log.read_text() and f"from {LATER} on" in refused.log.read_text()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_waits_for_the_migrations_it_needs(stand: Stand) -> None:
    migrate.downgrade(stand.url, "0003")
    refused = stand.worker(SCHEMA_WAIT_SECONDS="0")
    assert refused.process.wait(90) == 1
    assert "run 'ehr-d3pm migrate'" in refused.log.read_text()
    waits = stand.worker()
    migrate.upgrade(stand.url)
    stand.succeed(stand.ingest(long_csv()))
    assert waits.process.poll() is None


def test_the_range_of_schemas(database_url: str) -> None:
    from model_store.database import open_engine

    engine = open_engine(database_url, pooled=False)
    migrate.upgrade(database_url, OLDEST_SCHEMA)
    migrate.check(engine)
    migrate.downgrade(database_url, f"{int(OLDEST_SCHEMA) - 1:04d}")
    with pytest.raises(SchemaError, match="at least"):
        migrate.check(engine)
    engine.dispose()


def test_a_worker_that_tells_more_of_itself_is_known_all_the_same() -> None:
    assert WorkerFacts.of({"name": "a", "host": "b", "slots": 1, "cores": 2, "gpus": 8}).cores == 2
