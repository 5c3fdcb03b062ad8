"""A whole service without its HTTP face: database, broker, store and real worker processes."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select

from model_store import layout, migrate
from model_store.blobs import S3Store, open_store
from model_store.database import Database
from model_store.ids import DATASET, MODEL, UPLOAD, new_id
from model_store.repositories import TERMINAL_STATES, JobRepository
from model_store.tables import Discard, Job
from runtime.broker import Broker
from runtime.settings import Settings
from runtime.sweeper import Sweeper
from tests.service.servers import PATIENCE_SECONDS, Valkey
from worker.contract import ROUTES, GeneratePayload, IngestPayload, Payload, TrainPayload, UploadedFile
from worker.processes import die_with_parent

OWNER = "tester"
# Short, so that a whole life of a job fits into seconds. The lease is not: no pause of a busy machine may end it.
SHORT = {
    "LEASE_SECONDS": "60",
    "HEARTBEAT_SECONDS": "0.3",
    "SWEEP_SECONDS": "0.3",
    "REPUBLISH_SECONDS": "2",
    "CHECKPOINT_SECONDS": "0",
    "CANCEL_GRACE_SECONDS": "2",
    "TURN_SECONDS": "0.5",
    "PART_RECORDS": "1024",
    "REFERENCE_RECORDS": "4096",
    "MAX_INFLATED_BYTES": "64000000",
    "DEVICE": "cpu",
    "LOG_LEVEL": "INFO",
}
# for workers that are going to be lost: others take over when it ends. Above the pauses of a busy machine, too.
BRIEF_LEASE = {"LEASE_SECONDS": os.environ.get("TEST_LEASE_SECONDS", "4")}
TINY = {"denoiser": {"kind": "sparse", "width": 16, "blocks": 1}, "timesteps": 50}


@dataclass
class Stand:
    """`url` of a fresh database, a broker, a folder for everything else, and what else the environment says."""

    folder: Path
    url: str
    valkey: Valkey
    extra: dict[str, str] = field(default_factory=dict)
    workers: list["Worker"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **SHORT,
            "DATA_DIR": str(self.folder),
            "DATABASE_URL": self.url,
            "REDIS_URL": self.valkey.url,
            "STORE_URL": f"file://{self.folder / 'store'}",
            **self.extra,
        }
        self.settings = Settings(**{name.lower(): value for name, value in self.environment.items()})
        migrate.upgrade(self.url)
        self.database = Database(self.url)
        self.store = open_store(self.settings.resolved_store_url, self.settings.scratch_dir)
        self.broker = Broker(self.settings.resolved_redis_url)
        self.sweeper = Sweeper(self.database, self.broker, self.store, ROUTES, self.settings)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.database.close()
        self.broker.close()

    def worker(self, **environment: str) -> "Worker":
        """A real worker process tree; it can also run the jobs of faulty_worker.py."""
        worker = Worker(self.folder / f"worker{len(self.workers)}.log", {**self.environment, **environment})
        self.workers.append(worker)
        return worker

    # --- submitting, as the API does ---

    def submit(
        self, kind: str, payload: Payload, *, publish: bool = True, max_attempts: int = 3, owner: str = OWNER
    ) -> str:
        with self.database.session_scope() as session:
            job = JobRepository(session).submit(owner, kind, *ROUTES[kind], payload.stored(), max_attempts)
        if publish:
            self.sweeper.publish()
        return job.id

    def ingest(
        self, csv: bytes, name: str = "data", *, publish: bool = True, owner: str = OWNER, **options: Any
    ) -> str:
        upload = new_id(UPLOAD)
        self.store.write(layout.upload_blob(upload), csv)
        files = [UploadedFile(upload_id=upload, size=len(csv))]
        payload = IngestPayload(dataset_id=new_id(DATASET), name=name, files=files, **options)
        return self.submit("ingest", payload, publish=publish, owner=owner)

    def train(self, dataset_id: str, epochs: int = 2, max_attempts: int = 3, **options: Any) -> str:
        settings = {**TINY, "training": {"epochs": epochs, "batch_size": 64, "holdout_draws": 1}}
        payload = TrainPayload(
            model_id=new_id(MODEL), name="model", dataset_id=dataset_id, **({"settings": settings} | options)
        )
        return self.submit("train", payload, max_attempts=max_attempts)

    def generate(self, model_id: str, n: int = 100, **options: Any) -> str:
        return self.submit("generate", GeneratePayload(model_id=model_id, n=n, **options))

    # --- looking ---

    def job(self, job_id: str) -> Job:
        with self.database.read_scope() as session:
            return session.get_one(Job, job_id)

    def states(self, job_id: str) -> list[str]:
        with self.database.read_scope() as session:
            events = JobRepository(session).events(OWNER, job_id)
        return [event.data["state"] for event in events if event.kind == "state"]

    def wait(self, job_id: str, seconds: float = PATIENCE_SECONDS, state: str | None = None) -> Job:
        """Until the job is in `state`, or has ended."""
        deadline = time.monotonic() + seconds
        while True:
            job = self.job(job_id)
            if job.state == state or (state is None and job.state in TERMINAL_STATES):
                return job
            if time.monotonic() > deadline or (job.state in TERMINAL_STATES):
                raise AssertionError(f"the job is {job.state}, {job.error}, {job.progress}\n{self.logs()}")
            time.sleep(0.05)

    def succeed(self, job_id: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait for a good end and return the result."""
        job = self.wait(job_id, seconds)
        assert job.state == "succeeded", f"{job.error}\n{self.logs()}"
        assert job.result is not None
        return job.result

    def cancel(self, job_id: str) -> Job:
        with self.database.session_scope() as session:
            return JobRepository(session).request_cancel(OWNER, job_id)

    def blobs(self, folder: str) -> list[str]:
        """Every file under a folder of the store, temporary ones and unfinished uploads included."""
        if isinstance(self.store, S3Store):
            return sorted([*self.store.list(folder), *(key for key, _ in self.store.unfinished(folder))])
        root = self.folder / "store"
        places = os.walk(root / folder)  # which passes over what is removed while it looks, as sweepers do
        return sorted(Path(at, name).relative_to(root).as_posix() for at, _, names in places for name in names)

    def uploads_of(self, job_id: str) -> list[str]:
        """What is left of the files of an ingest job."""
        uploads = [file["upload_id"] for file in self.job(job_id).payload["files"]]
        return [blob for upload in uploads for blob in self.blobs(f"uploads/{upload}")]

    def discards(self) -> list[str]:
        """What is noted for removal."""
        with self.database.read_scope() as session:
            return list(session.scalars(select(Discard.prefix)))

    def misbehave(self, **faults: str) -> None:
        """What its workers find from now on: see faulty_worker.py. Nothing: they are as they should be."""
        folder = self.folder / "faults"
        folder.mkdir(exist_ok=True)
        for name in ("full", "clock"):
            partial = folder / f".{name}"
            partial.write_text(faults.get(name, ""))
            partial.replace(folder / name)

    def logs(self) -> str:
        return "\n".join(worker.log.read_text()[-3000:] for worker in self.workers)


class Worker:
    """A worker process with its children."""

    def __init__(self, log: Path, environment: dict[str, str]) -> None:
        self.log = log
        parent = os.getpid()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.service.faulty_worker"],
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
            )

    def signal_tree(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def is_up(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """kill -9 of the whole tree."""
        try:
            self.signal_tree(signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait()


def long_csv(n: int = 300, n_codes: int = 12, seed: int = 0) -> bytes:
    """A small long table whose codes have leading zeros and occur together."""
    rng = np.random.default_rng(seed)
    rows = ["record_id,patient_id,vocabulary,code"]
    for record in range(n):
        sick = rng.random() < 0.3
        for code in range(n_codes):
            if code == record % n_codes or rng.random() < (0.6 if sick and code < 4 else 0.2):
                rows.append(f"r{record},p{record // 2},ICD9DX,{code:03d}")
    return ("\n".join(rows) + "\n").encode()
