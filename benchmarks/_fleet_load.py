"""Jobs of every kind, submitted over HTTP all the time while the fleet below changes, and followed to their end."""

import hashlib
import itertools
import threading
import time
import zipfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks._harness import Figures, show
from ehr_d3pm import ApiError, Client
from tests.service.stand import TINY, long_csv

IN_FLIGHT = 5
LOOK_SECONDS = 0.2
DRAIN_SECONDS = 600.0
ENDED = ("succeeded", "failed", "cancelled")
LONG = {**TINY, "training": {"epochs": 60, "batch_size": 64, "holdout_draws": 1}}  # seconds: a stop finds it at work
LARGE = 30_000  # records of a cohort in several parts
KINDS = ("train", "generate", "ingest", "report", "generate")


@dataclass
class Followed:
    """A job as it was last seen, and the API that took it."""

    kind: str
    api: str
    state: str = "queued"
    attempt: int = 0
    error: Any = None
    result: Any = None


class Load:
    """`with Load(url, folder) as load:` has data and a model, and submits until it is drained."""

    def __init__(self, url: str, folder: Path) -> None:
        self.table = folder / "records.csv"
        self.table.write_bytes(long_csv(600))
        self.urls = [url]
        self.jobs: dict[str, Followed] = {}
        self.refused: list[str] = []
        self._clients: dict[str, Client] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        client = self._client(self.urls[0])
        self.dataset = client.wait(client.upload([self.table]))["result"]["dataset_id"]
        trained = client.wait(client.train(self.dataset, settings=LONG, seed=3))
        self.model = trained["result"]["model_id"]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        for client in self._clients.values():
            client.close()

    def in_flight(self) -> int:
        """Jobs at work at this moment."""
        return sum(job.state == "running" for job in self._seen())

    def pace(self, jobs: int) -> int:
        """Wait until so many more have ended and one is at work, so that the next change meets some; how many."""
        goal, deadline = self._ended() + jobs, time.monotonic() + DRAIN_SECONDS
        while self._ended() < goal or self.in_flight() == 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing goes on: {Counter(job.state for job in self._seen())}")
            time.sleep(LOOK_SECONDS)
        return self.in_flight()

    def drain(self) -> None:
        """Submit no more, and wait until everything has ended, or for so long that it never will."""
        self._stopping.set()
        self._thread.join(60)
        deadline = time.monotonic() + DRAIN_SECONDS
        while any(job.state not in ENDED for job in self._seen()) and time.monotonic() < deadline:
            self._look()
            time.sleep(LOOK_SECONDS)

    def different_results(self) -> int:
        """All trainings are the same one, and so are all large cohorts: how many results differ from the first."""
        client, path = self._client(self.urls[0]), self.table.with_suffix(".downloaded")
        ended = [(job_id, job) for job_id, job in self.jobs.items() if job.state == "succeeded"]
        weights = [_weights(client, job.result["model_id"], path) for _, job in ended if job.kind == "train"]
        records = [_records(client, job_id, path) for job_id, job in ended if job.kind == "generate"]
        return sum(value != values[0] for values in (weights, records) for value in values)

    def report(self, title: str) -> None:
        """A table of what became of the jobs, and errors."""
        seen = self._seen()
        rows = []
        for kind in dict.fromkeys(job.kind for job in seen):
            ofs = [job for job in seen if job.kind == kind]
            states = Counter(job.state for job in ofs)
            cells = [str(states.get(state, 0)) for state in ("succeeded", "failed")]
            rows.append([kind, str(len(ofs)), *cells, str(sum(job.attempt > 1 for job in ofs))])
        show(title, ["jobs", "submitted", "succeeded", "failed", "in several attempts"], rows)
        for job in seen:
            if job.state != "succeeded":
                print(f"{job.kind} through {job.api}: {job.state} {job.error}")
        for reason in self.refused:
            print(f"refused: {reason}")

    def count(self, figures: Figures, name: str, lost: str) -> None:
        seen = self._seen()
        figures.add(f"{name}.{lost}", sum(job.state != "succeeded" for job in seen), "jobs")
        figures.add(f"{name}.jobs", len(seen), "jobs")
        figures.add(f"{name}.refused_requests", len(self.refused), "requests")

    # --- the thread ---

    def _run(self) -> None:
        kinds = itertools.cycle(KINDS)
        for number in itertools.count():
            while sum(job.state not in ENDED for job in self._seen()) >= IN_FLIGHT:
                if self._stopping.is_set():
                    return
                self._look()
                time.sleep(LOOK_SECONDS)
            if self._stopping.is_set():
                return
            self._submit(next(kinds), self.urls[number % len(self.urls)])

    def _submit(self, kind: str, url: str) -> None:
        client = self._client(url)
        try:
            if kind == "ingest":
                job = client.upload([self.table])
            elif kind == "train":
                job = client.train(self.dataset, settings=LONG, seed=3)
            elif kind == "report":  # a small cohort, with a report on it
                job = client.generate(self.model, 2_000, evaluate=True)
            else:
                job = client.generate(self.model, LARGE, seed=5, evaluate=False)
        except Exception as error:  # whatever it is, a client was refused
            self.refused.append(f"{kind} at {url}: {error}")
            time.sleep(LOOK_SECONDS)
            return
        self.jobs[job["id"]] = Followed(kind, url)

    def _look(self) -> None:
        for job_id, job in list(self.jobs.items()):
            if job.state in ENDED:
                continue
            try:
                found = self._client(self.urls[-1]).job(job_id)
            except Exception as error:
                self.refused.append(f"job at {self.urls[-1]}: {error}")
                return
            job.state, job.attempt = found["state"], found["attempt"]
            job.error, job.result = found["error"], found["result"]
            if job.kind == "report" and job.state == "succeeded" and job.result.get("evaluate_job_id"):
                self.jobs.setdefault(job.result["evaluate_job_id"], Followed("evaluate", job.api))

    def _client(self, url: str) -> Client:
        if url not in self._clients:
            self._clients[url] = Client(url, timeout=120)
        return self._clients[url]

    def _seen(self) -> list[Followed]:
        return list(self.jobs.values())

    def _ended(self) -> int:
        return sum(job.state in ENDED for job in self._seen())


def _weights(client: Client, model_id: str, path: Path) -> str:
    client.download_bundle(model_id, path)
    with zipfile.ZipFile(path) as bundle:
        return hashlib.sha256(bundle.read("weights.safetensors")).hexdigest()


def _records(client: Client, cohort_id: str, path: Path) -> str:
    with suppress(ApiError):  # it is not withheld
        client.release(cohort_id, "compared on this machine only")
    client.download(cohort_id, path, "ndjson")
    return hashlib.sha256(path.read_bytes()).hexdigest()
