"""A process that the system ends because memory is used up: its job is tried again, and fails by name."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_store import migrate
from model_store.database import Database
from model_store.repositories import JobRepository, LeaseRepository
from tests.service.test_repositories import claimed, state_of, submitted
from worker.contract import ROUTES
from worker.memory_kills import MemoryKills
from worker.memory_kills import kills as counted_kills


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    migrate.upgrade(database_url)
    database = Database(database_url)
    yield database
    database.close()


def test_what_the_system_ended_for_want_of_memory_fails_by_name(database: Database) -> None:
    """Twice: once it is tried again at once, then there is no attempt left. Whoever lives keeps their job."""
    ended, kills = subprocess.Popen(["true"]), [3]
    ended.wait()
    job_id, other = submitted(database, max_attempts=2), submitted(database)
    assert claimed(database, other, f"host:{os.getpid()}:x") is not None
    watch = MemoryKills(database, "host", lambda: kills[0])
    for attempt in (1, 2):
        claim = claimed(database, job_id, f"host:{ended.pid}:{attempt}", seconds=600)
        assert claim is not None and claim.attempt == attempt and watch.look() == []
        kills[0] += 1
        assert watch.look() == [job_id]
        with database.session_scope() as session:
            assert [each.state for each in LeaseRepository(session).expire(ROUTES)] == ["queued"][: 2 - attempt]
    with database.read_scope() as session:
        job = JobRepository(session).get("ada", job_id)
    assert job.state == "failed" and job.error is not None and job.error["type"] == "out-of-memory"
    assert state_of(database, other) == "running"


@pytest.mark.parametrize(
    ("own", "place", "text"),
    [
        ("0::/unit", "unit/memory.events", "low 0\noom 4\noom_kill 2\n"),
        ("4:cpu:/x\n3:memory:/docker/a\n0::/", "memory/docker/a/memory.oom_control", "under_oom 0\noom_kill 2\n"),
        ("3:memory:/elsewhere", "memory/memory.oom_control", "oom_kill 2\n"),
    ],
)
def test_who_counts_what_the_system_ended(tmp_path: Path, own: str, place: str, text: str) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "own").write_text(own)
    assert counted_kills(tmp_path, tmp_path / "own") == 0
    (tmp_path / place).write_text(text)
    assert counted_kills(tmp_path, tmp_path / "own") == 2
