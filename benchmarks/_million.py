"""A large cohort through the API of a real service: seconds, memory of each worker, bytes on disk."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks._harness import Figures, progress_bar, show
from benchmarks.service import free_port, peak_rss_mib, tree
from ehr.generators.d3pm import PRESETS, D3PMConfig
from ehr.vocabulary import Vocabulary
from ehr_d3pm import Client
from model_store import layout
from model_store.blobs import open_store
from model_store.bundles import Bundle, model_manifest, save_bundle
from model_store.database import Database
from model_store.ids import DATASET, JOB, MODEL, new_id
from model_store.repositories import ModelRepository
from model_store.tables import Model
from runtime.settings import Settings
from worker.embedded import Child, Supervisor
from worker.engine.generators import Generator
from worker.engine.generators.d3pm import D3PMGenerator
from worker.tasks.costs import measured_costs, memory_bytes
from worker.tasks.loading import pack_tensors, plain

OWNER = "local"  # whose everything is on a service without keys
N_CODES, CODES_PER_RECORD = 949, 8.7  # as data/nhds-adult
LOOK_SECONDS = 0.2
FULL, QUICK = (100_000, 1_000_000), (1_024, 4_096)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Measured:
    """`peak_rss_gib` has one entry for each worker: the most that a process of it held while the cohort was made."""

    records: int
    seconds: float
    expected_seconds: float | None
    peak_rss_gib: tuple[float, ...]
    bytes_on_disk: int


def measure(figures: Figures, quick: bool = False, workers: int = 2) -> None:
    """A tenth of the records and all of them, so that growth of memory would show; the figures are those of all."""
    with progress_bar("records through the API") as progress:
        measured = measure_each(list(QUICK if quick else FULL), workers, progress=progress)
    _show(measured, workers)
    largest = measured[-1]
    figures.add("million.seconds", largest.seconds * 1_000_000 / largest.records, "s")
    figures.add("million.peak_rss_gib", max(largest.peak_rss_gib), "GiB")
    figures.add("million.bytes_per_record", largest.bytes_on_disk / largest.records, "B")
    if largest.expected_seconds is not None:
        figures.add("million.expected_over_taken", largest.expected_seconds / largest.seconds, "ratio")


def _show(measured: list[Measured], workers: int) -> None:
    header = ["records", "seconds", "expected", "records per s", "most memory of each worker, GiB", "bytes on disk"]
    rows = [
        [
            f"{m.records:,}",
            f"{m.seconds:.1f}",
            "-" if m.expected_seconds is None else f"{m.expected_seconds:.1f}",
            f"{m.records / m.seconds:,.0f}",
            ", ".join(f"{peak:.2f}" for peak in m.peak_rss_gib),
            f"{m.bytes_on_disk:,}",
        ]
        for m in measured
    ]
    show(f"cohorts of {N_CODES} codes through the API, {workers} workers", header, rows)


def measure_each(
    sizes: list[int], workers: int = 2, model: Generator | None = None, progress: Progress = lambda *_: None
) -> list[Measured]:
    """For each size, start the service with so many workers and have it generate a cohort; with fresh workers, because
    what a process has held before would count. `model` is by default an untrained network of the size of preset `fast`:
    what it draws is nonsense, but as much work."""
    threads = max((os.cpu_count() or 1) // workers, 1)
    bundle = bundle_of(untrained() if model is None else model, threads)
    return [_measure_one(size, workers, bundle, threads, progress) for size in sizes]


def untrained(
    codes: int = N_CODES, codes_per_record: float = CODES_PER_RECORD, config: D3PMConfig = PRESETS["fast"]
) -> Generator:
    """Initial weights and simulated prevalences: a few codes are common, most are rare."""
    weight = np.arange(1, codes + 1) ** -0.9
    prevalence = np.clip(codes_per_record * weight / weight.sum(), None, 0.5)
    sizes = np.bincount(np.random.default_rng(0).poisson(prevalence.sum(), 100_000))
    shares = np.append(sizes, 0) / sizes.sum()
    return D3PMGenerator(config, torch.from_numpy(prevalence), torch.from_numpy(shares))


def _measure_one(records: int, workers: int, bundle: Bundle, threads: int, progress: Progress) -> Measured:
    with tempfile.TemporaryDirectory(prefix="ehrbench", ignore_cleanup_errors=True) as folder:
        settings = Settings(data_dir=Path(folder), port=free_port())
        with _service(settings, workers, threads) as processes, Client(f"http://127.0.0.1:{settings.port}") as client:
            _wait_until_ready(client)
            model_id = stored(settings, bundle)
            expected = client.estimate(model_id, records)["seconds"]
            start = time.perf_counter()
            job = client.generate(model_id, records, evaluate=False)
            peaks = _follow(client, job["id"], processes, records, progress)
            seconds = time.perf_counter() - start
            size = sum(
                file.stat().st_size for file in (Path(folder) / "store" / "cohorts").rglob("*") if file.is_file()
            )
    return Measured(records, seconds, expected, peaks, size)


@contextmanager
def _service(settings: Settings, workers: int, threads: int) -> Iterator[list[Child]]:
    """The embedded service with more workers; none takes more threads than its share of the cores."""
    command = [sys.executable, "-m", "ehr_d3pm", "api", "--port", str(settings.port), "--log-level", "error"]
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)  # the children inherit it
    started: list[Child] = []
    try:
        with Supervisor(settings, command) as supervisor:
            environment = supervisor.environment()
            for number in range(1, workers):
                log = settings.resolved_data_dir / f"worker{number}.log"
                child = Child("another worker", [sys.executable, "-m", "worker"], environment, log)
                child.start()
                started.append(child)
            yield [next(child for child in supervisor.children if child.name == "worker"), *started]
    finally:
        for child in started:
            child.stop()
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _wait_until_ready(client: Client) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            client.ready()
            return
        except Exception:  # not yet bound, or its parts not yet up
            time.sleep(0.2)
    raise RuntimeError("the service did not become ready")


def bundle_of(generator: Generator, threads: int) -> Bundle:
    """The generator as a training would leave it, its costs measured with the threads that the workers will have."""
    state = generator.state()
    vocabulary = Vocabulary(tuple(f"SIM:{number:04d}" for number in range(len(state.tensors["prevalence"]))))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    costs = measured_costs(state, vocabulary, 0, memory_bytes())
    torch.set_num_threads(before)
    return Bundle(pack_tensors(state.tensors), model_manifest(plain(state.config), vocabulary, seed=0, costs=costs))


def stored(settings: Settings, bundle: Bundle) -> str:
    model_id = new_id(MODEL)
    folder = layout.model_folder(model_id, 1)
    row = Model(
        id=model_id,
        owner=OWNER,
        name="benchmark",
        job_id=new_id(JOB),
        dataset_id=new_id(DATASET),
        generator=bundle.manifest.config["generator"],
        prefix=folder,
        manifest_hash=save_bundle(open_store(settings.resolved_store_url), folder, bundle),
        n_codes=len(bundle.vocabulary),
        details={"seed": bundle.manifest.seed, "costs": bundle.manifest.costs},
    )
    database = Database(settings.resolved_database_url, pooled=False)
    with database.session_scope() as session:
        ModelRepository(session).add(row)
    database.close()
    return model_id


def _follow(client: Client, job_id: str, workers: list[Child], records: int, progress: Progress) -> tuple[float, ...]:
    """Wait for the job; the most memory that a process of each worker held."""
    peaks = [0.0] * len(workers)

    def sample() -> None:
        for number, worker in enumerate(workers):
            assert worker.process is not None
            for pid in tree(worker.process.pid):
                peaks[number] = max(peaks[number], peak_rss_mib(pid) / 1024)

    while (job := client.job(job_id))["state"] not in ("succeeded", "failed", "cancelled"):
        progress(int(job["progress"]["steps"][1]["value"]), records)
        sample()
        time.sleep(LOOK_SECONDS)
    sample()
    if job["state"] != "succeeded":
        raise RuntimeError(f"the job {job['state']}: {job['error']}")
    return tuple(peaks)
