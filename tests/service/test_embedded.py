"""The embedded runtime: one supervisor, no orphans, and it goes on where it was."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ehr.errors import ConflictError
from ehr_d3pm import Client
from model_store import layout
from model_store.blobs import open_store
from model_store.database import Database
from model_store.ids import DATASET, UPLOAD, new_id
from model_store.repositories import JobRepository
from runtime.settings import Settings
from tests.service.servers import wait_until
from tests.service.stand import SHORT, long_csv
from worker.commands.demo import WatchfulClient
from worker.contract import ROUTES, IngestPayload, UploadedFile
from worker.embedded import Supervisor, exclusive
from worker.processes import die_with_parent

SLEEPER = "import time; time.sleep(600)"
SERVE = f"""
import sys
from runtime.settings import Settings
from worker.embedded import serve
serve(Settings(), [sys.executable, "-c", {SLEEPER!r}])
"""


@pytest.fixture
def settings() -> Iterator[Settings]:
    with tempfile.TemporaryDirectory(prefix="ehr", ignore_cleanup_errors=True) as folder:
        yield Settings(data_dir=Path(folder) / "data")


def started(settings: Settings) -> subprocess.Popen[bytes]:
    parent = os.getpid()
    return subprocess.Popen(
        [sys.executable, "-c", SERVE],
        env={**os.environ, **SHORT, "DATA_DIR": str(settings.data_dir), "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
    )


def family(pid: int) -> set[int]:
    """A process and all that descend from it."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def alive(pids: set[int]) -> set[int]:
    def runs(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    return {pid for pid in pids if runs(pid)}


def submit(settings: Settings) -> str:
    upload, csv = new_id(UPLOAD), long_csv(40)
    open_store(settings.resolved_store_url).write(layout.upload_blob(upload), csv)
    files = [UploadedFile(upload_id=upload, size=len(csv))]
    payload = IngestPayload(dataset_id=new_id(DATASET), name="x", files=files, min_records=1)
    database = Database(settings.resolved_database_url, pooled=False)
    with database.session_scope() as session:
        return JobRepository(session).submit("me", "ingest", *ROUTES["ingest"], payload.stored(), 3).id


def state(settings: Settings, job_id: str) -> str:
    database = Database(settings.resolved_database_url, pooled=False)
    with database.read_scope() as session:
        return JobRepository(session).get("me", job_id).state


def test_kill_9_leaves_no_orphan_and_a_new_start_goes_on(settings: Settings) -> None:
    supervisor = started(settings)
    wait_until(settings.embedded_socket.exists, "Valkey")
    # valkey, worker with its child, api
    wait_until(lambda: len(family(supervisor.pid)) >= 5, "all parts")
    first = submit(settings)
    wait_until(lambda: state(settings, first) == "succeeded", "the first job")
    everyone = family(supervisor.pid)

    supervisor.kill()
    supervisor.wait()
    wait_until(lambda: not alive(everyone), "the end of every process")
    second = submit(settings)  # nobody is there to run it

    again = started(settings)
    wait_until(lambda: state(settings, second) == "succeeded", "the second job")
    everyone = family(again.pid)
    again.send_signal(signal.SIGINT)
    assert again.wait(30) == 0
    wait_until(lambda: not alive(everyone), "the end of every process")


def test_what_is_killed_comes_back(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SHORT.items():
        monkeypatch.setenv(name, value)
    with Supervisor(settings, [sys.executable, "-c", SLEEPER]) as supervisor:
        for child in supervisor.children:
            assert child.process is not None
            child.process.kill()
            child.process.wait()
        supervisor.watch_once()
        assert all(child.is_up() for child in supervisor.children)
        job_id = submit(settings)
        wait_until(lambda: state(settings, job_id) == "succeeded", "a job")
        with pytest.raises(ConflictError), exclusive(settings.resolved_data_dir):
            pass
    assert not any(child.is_up() for child in supervisor.children)
    time.sleep(0.1)
    with exclusive(settings.resolved_data_dir):
        pass


@pytest.mark.timeout(120)
def test_the_demo_does_not_wait_for_a_worker_that_is_gone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SHORT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Client, "job", lambda _, job_id: {"id": job_id, "state": state(settings, job_id)})
    with Supervisor(settings) as supervisor, WatchfulClient("http://127.0.0.1:9", supervisor.watch_once) as client:
        worker = next(child for child in supervisor.children if child.name == "worker")
        assert worker.process is not None
        worker.process.kill()
        worker.process.wait()
        assert client.wait(submit(settings))["state"] == "succeeded"


def test_a_long_data_folder_still_gets_a_socket(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / ("x" * 120))
    assert len(str(settings.embedded_socket)) <= 100
