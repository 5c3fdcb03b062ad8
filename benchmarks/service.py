"""The service under load: errors, lost jobs, cost of polling, memory of streaming, ingestion of a million records.

python -m benchmarks.service [--quick] [--json FILE]
"""

import asyncio
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks._harness import Figures, options, progress_bar, show, timed
from benchmarks._service_data import add_cohort, add_jobs, write_long_csv
from benchmarks._service_load import Load, run_load
from ehr.formats import WRITERS
from ehr_d3pm import Client
from model_store.blobs import open_store
from model_store.database import Database
from runtime.settings import Settings
from worker.embedded import Supervisor

FEW_JOBS = 100
OWNER = "local"  # whose everything is on a service without keys


@dataclass(frozen=True)
class Sizes:
    clients: int
    load_seconds: float
    drain_seconds: float
    many_jobs: int
    polls: int
    cohort: int
    records: int


FULL = Sizes(200, 60, 300, 100_000, 400, 1_000_000, 1_000_000)
QUICK = Sizes(20, 4, 60, 2_000, 50, 20_000, 10_000)


class Bench:
    """A running service and what is measured on it."""

    def __init__(self, settings: Settings, supervisor: Supervisor, sizes: Sizes, figures: Figures) -> None:
        self.settings, self.supervisor, self.sizes, self.figures = settings, supervisor, sizes, figures
        self.url = f"http://{settings.host}:{settings.port}"
        self.client = Client(self.url, timeout=600)
        self.database = Database(settings.resolved_database_url)
        self.store = open_store(settings.resolved_store_url)

    def wait_until_ready(self) -> None:
        while True:
            try:
                self.client.ready()
                return
            except Exception:  # not yet bound, or its parts not yet up
                time.sleep(0.2)

    def pid(self, name: str) -> int:
        child = next(child for child in self.supervisor.children if child.name == name)
        assert child.process is not None
        return child.process.pid

    # --- load ---

    def load(self) -> None:
        model_id = self._small_model()
        sizes = self.sizes
        with progress_bar(f"{sizes.clients} clients, seconds") as progress:
            address = (self.settings.host, self.settings.port)
            load = asyncio.run(
                run_load(address, model_id, sizes.clients, sizes.load_seconds, sizes.drain_seconds, progress)
            )
        self._show_load(load)
        self.figures.add("load.errors", sum(load.errors.values()), "requests")
        self.figures.add("load.lost_jobs", load.lost, "jobs")
        self.figures.add("load.requests_per_s", load.requests / load.elapsed, "1/s")

    def _small_model(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "small.csv"
            write_long_csv(table, 2_000, lambda *_: None)
            dataset = self.client.wait(self.client.upload([table]))["result"]["dataset_id"]
        job = self.client.wait(self.client.train(dataset, generator="independent"))
        model_id: str = job["result"]["model_id"]
        return model_id

    def _show_load(self, load: Load) -> None:
        rows = [
            ["requests", f"{load.requests:,}"],
            ["requests per second", f"{load.requests / load.elapsed:.0f}"],
            ["median, ms", f"{1000 * load.quantile(0.5):.0f}"],
            ["95th percentile, ms", f"{1000 * load.quantile(0.95):.0f}"],
            ["jobs submitted", str(len(load.jobs))],
            ["errors", str(dict(load.errors) or "none")],
            ["jobs that did not succeed", str(load.lost)],
        ]
        show(f"{self.sizes.clients} clients for {load.elapsed:.0f} s", ["", "value"], rows)

    # --- cost of polling ---

    def growth(self) -> None:
        """The same request with a hundred rows in the table, and with many."""
        add_jobs(self.database, OWNER, FEW_JOBS, lambda *_: None)
        job_id = next(iter(self.client.jobs(limit=1)))["id"]
        few = self._poll_seconds(job_id)
        with progress_bar("job rows") as progress:
            add_jobs(self.database, OWNER, self.sizes.many_jobs, progress)
        many = self._poll_seconds(job_id)
        listed = self._poll_seconds("?limit=50")
        rows = [
            [f"GET /jobs/{{id}}, {FEW_JOBS} rows", f"{1000 * few:.2f}"],
            [f"GET /jobs/{{id}}, {self.sizes.many_jobs:,} rows more", f"{1000 * many:.2f}"],
            ["GET /jobs?limit=50 then", f"{1000 * listed:.2f}"],
        ]
        show("cost of polling", ["", "ms"], rows)
        self.figures.add("jobs.get_growth", many / few, "ratio")

    def _poll_seconds(self, what: str) -> float:
        """The median of the fastest of five batches: other work on the machine only ever adds."""
        path = f"/jobs{what}" if what.startswith("?") else f"/jobs/{what}"
        batches = []
        with httpx.Client(base_url=self.url) as http:
            for _ in range(5):
                seconds = []
                for _ in range(self.sizes.polls // 5):
                    with timed() as took:
                        http.get(path).raise_for_status()
                    seconds += took
                batches.append(statistics.median(seconds))
        return min(batches)

    # --- memory of streaming ---

    def stream(self) -> None:
        with progress_bar("cohort records") as progress:
            cohort = add_cohort(self.database, self.store, OWNER, self.sizes.cohort, progress)
        warm = add_cohort(self.database, self.store, OWNER, 20_000, lambda *_: None)
        pid, rows, worst = self.pid("api"), [], 0.0
        for wanted in WRITERS:
            for _ in range(2):
                self._download(warm, wanted.name, pid)  # libraries load and allocators fill once
            before = rss_mib(pid)
            with timed() as took:
                peak, size = self._download(cohort, wanted.name, pid)
            worst = max(worst, peak - before)
            cells = [wanted.name, f"{size / 2**20:.0f}", f"{took[0]:.1f}", f"{before:.0f}", f"{peak:.0f}"]
            rows.append([*cells, f"{peak - before:+.1f}"])
        title = f"streaming {self.sizes.cohort:,} records"
        show(title, ["format", "MiB", "seconds", "RSS before, MiB", "RSS at most, MiB", "growth"], rows)
        self.figures.add("stream.rss_growth_mib", worst, "MiB")

    def _download(self, cohort: str, name: str, pid: int) -> tuple[float, int]:
        """(the most memory the API held, bytes received)"""
        peak, size = rss_mib(pid), 0
        with httpx.stream("GET", f"{self.url}/cohorts/{cohort}/records?format={name}", timeout=600) as answer:
            answer.raise_for_status()
            for block in answer.iter_bytes(1 << 20):
                size += len(block)
                peak = max(peak, rss_mib(pid))
        return peak, size

    # --- ingestion ---

    def ingest(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "records.csv"
            with progress_bar("records to upload") as progress:
                n_rows = write_long_csv(table, self.sizes.records, progress)
            with timed() as took:
                job = self.client.upload([table], name="a million records")
                with timed() as worked:
                    job = self.client.wait(job)
            size = table.stat().st_size
        peak = max(peak_rss_mib(pid) for pid in [self.pid("api"), *tree(self.pid("worker"))]) / 1024
        rows = [
            ["rows", f"{n_rows:,}"],
            ["upload, MiB", f"{size / 2**20:.0f}"],
            ["seconds, upload and ingestion", f"{took[0]:.1f}"],
            ["seconds, ingestion", f"{worked[0]:.1f}"],
            ["most memory of a process, GiB", f"{peak:.2f}"],
        ]
        show(f"ingestion of {self.sizes.records:,} records", ["", "value"], rows)
        self.figures.add("ingest.seconds_1m", took[0] * 1_000_000 / self.sizes.records, "s")
        self.figures.add("ingest.peak_rss_gib", peak, "GiB")


def rss_mib(pid: int) -> float:
    """What a process holds now."""
    return _status(pid, "VmRSS")


def peak_rss_mib(pid: int) -> float:
    """The most a process has held."""
    return _status(pid, "VmHWM")


def _status(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(grandchild for child in children for grandchild in tree(int(child)))]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    parser = options("The service under load")
    parts = ("ingest", "growth", "load", "stream")
    parser.add_argument("--only", choices=parts, action="append", help="measure this part only; may be repeated")
    arguments = parser.parse_args()
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="ehrbench", ignore_cleanup_errors=True) as folder:
        settings = Settings(data_dir=Path(folder), port=free_port())
        command = [sys.executable, "-m", "ehr_d3pm", "api", "--port", str(settings.port), "--log-level", "error"]
        with Supervisor(settings, command) as supervisor:
            bench = Bench(settings, supervisor, QUICK if arguments.quick else FULL, figures)
            bench.wait_until_ready()
            for part in arguments.only or parts:
                getattr(bench, part)()
    figures.finish(arguments.json)


if __name__ == "__main__":
    main()
