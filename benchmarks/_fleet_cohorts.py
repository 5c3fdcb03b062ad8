"""Large cohorts through the API of a fleet: 1, 2 and 4 workers, and ten million records."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import httpx

from benchmarks._fleet_parts import Fleet, Running, new_fleet
from benchmarks._harness import Figures, progress_bar, show
from benchmarks._million import bundle_of, stored, untrained
from benchmarks.service import peak_rss_mib, tree
from ehr.generators.d3pm import D3PMConfig
from ehr_d3pm import ApiError, Client
from model_store.database import Database
from model_store.repositories import CohortRepository
from worker.engine.generators import Generator
from worker.threads import available_cores

LOOK_SECONDS = 0.2
WORKERS = (1, 2, 4)
SCALED, QUICK_SCALED = 131_072, 2_048
TEN_MILLION, QUICK_TEN_MILLION = (1_000_000, 10_000_000), (1_024, 4_096)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Made:
    """A cohort that was made: `seconds` from its submission to its end."""

    job_id: str
    records: int
    seconds: float
    peak_rss_gib: float  # the most that a process of a worker held


def scaling(figures: Figures, quick: bool) -> None:
    """`workers{n}.records_per_s` with one thread each, and `workers{n}.share_of_ideal`: over so many times what one
    does, or as many times as there are cores."""
    records, part = (QUICK_SCALED, 1_024) if quick else (SCALED, 4_096)
    cores, rates = available_cores(), {}
    with new_fleet(PART_RECORDS=str(part), WORKER_THREADS="1", TURN_SECONDS="3600") as fleet:
        fleet.migrate()
        model_id = _model(fleet, 1, untrained())
        with Client(fleet.api().url, timeout=120) as client, progress_bar("records, by 1, 2 and 4 workers") as advance:
            for number in WORKERS:
                workers = [fleet.worker() for _ in range(number)]
                _warm_up(fleet, client, model_id, workers, part)
                rates[number] = records / make(client, model_id, records, workers, advance).seconds
                for worker in workers:
                    worker.stop()
    ideal = {number: rates[1] * min(number, cores) for number in WORKERS}
    rows = [[str(n), f"{rates[n]:,.0f}", f"{rates[n] / ideal[n]:.2f}"] for n in WORKERS]
    show(f"workers with one thread each, {cores} cores", ["workers", "records / s", "share of ideal"], rows)
    for number in WORKERS:
        figures.add(f"workers{number}.records_per_s", rates[number], "1/s")
        figures.add(f"workers{number}.share_of_ideal", rates[number] / ideal[number], "ratio")


def _warm_up(fleet: Fleet, client: Client, model_id: str, workers: list[Running], part: int) -> None:
    """Until each has made a part of some cohort: loading its libraries is not what is measured."""
    drew: set[str] = set()
    database = Database(fleet.settings.resolved_database_url, pooled=False)
    while len(drew) < len(workers):
        made = make(client, model_id, 2 * part * len(workers), workers, lambda *_: None)
        with database.read_scope() as session:
            parts = CohortRepository(session).parts(made.job_id)
        drew |= {str(each.worker).split(":")[1] for each in parts}  # host:process:claim
    database.close()


def ten_million(figures: Figures, quick: bool) -> None:
    """`ten_million.seconds` and `ten_million.peak_rss_gib` of a worker; a tenth before, by other workers, so that
    growth would show; then it is downloaded. The network is small: what is measured is the way of so many records
    through queue, parts, database, store and API. How fast a large one draws is `workers` and benchmarks.million."""
    made: list[Made] = []
    with new_fleet() as fleet, progress_bar("records through the API") as advance:
        fleet.environment["STORE_URL"] = f"file://{fleet.folder / 'store'}"  # the S3 server here keeps it all in memory
        fleet.migrate()
        threads = max(available_cores() // 2, 1)
        model_id, api = _model(fleet, threads, small()), fleet.api()
        with Client(api.url, timeout=120) as client:
            for records in QUICK_TEN_MILLION if quick else TEN_MILLION:
                workers = [fleet.worker(WORKER_THREADS=str(threads)) for _ in range(2)]
                made.append(make(client, model_id, records, workers, advance))
                for worker in workers:
                    worker.stop()
            with suppress(ApiError):  # nothing withholds it
                client.release(made[-1].job_id, "of no patients at all")
        size, seconds = _downloaded(api, made[-1].job_id)
        api_rss = peak_rss_mib(api.process.pid) / 1024
    rows = [
        [f"{m.records:,}", f"{m.seconds:.0f}", f"{m.records / m.seconds:,.0f}", f"{m.peak_rss_gib:.2f}"] for m in made
    ]
    show("cohorts through the API, 2 workers", ["records", "seconds", "records / s", "most of a worker, GiB"], rows)
    last = made[-1]
    figures.add("ten_million.seconds", last.seconds * 10_000_000 / last.records, "s")
    figures.add("ten_million.peak_rss_gib", last.peak_rss_gib, "GiB")
    figures.add("ten_million.rss_over_a_tenth", last.peak_rss_gib / made[0].peak_rss_gib, "ratio")
    figures.add("ten_million.download_mb_per_s", size / 1e6 / seconds, "MB/s")
    figures.add("ten_million.api_peak_rss_gib", api_rss, "GiB")


def make(client: Client, model_id: str, records: int, workers: list[Running], progress: Progress) -> Made:
    """Ask for a cohort, and watch until it is there."""
    start, peak = time.perf_counter(), 0.0
    job = client.generate(model_id, records, evaluate=False)
    while job["state"] not in ("succeeded", "failed", "cancelled"):
        time.sleep(LOOK_SECONDS)
        job = client.job(job["id"])
        progress(int(job["progress"]["steps"][1]["value"]), records)
        peak = max([peak, *(peak_rss_mib(pid) / 1024 for worker in workers for pid in _family(worker))])
    if job["state"] != "succeeded":
        raise RuntimeError(f"the job {job['state']}: {job['error']}")
    return Made(job["id"], records, time.perf_counter() - start, peak)


def _family(worker: Running) -> list[int]:
    try:
        return tree(worker.process.pid)
    except FileNotFoundError:  # one of them has just ended
        return []


def small() -> Generator:
    """Of few codes and a narrow network."""
    return untrained(60, 5.0, D3PMConfig.of({"denoiser": {"kind": "sparse", "width": 64, "blocks": 1}}))


def _model(fleet: Fleet, threads: int, generator: Generator) -> str:
    """A network in the fleet's store; what an untrained one draws is as much work."""
    os.environ.update({name: value for name, value in fleet.environment.items() if name.startswith("AWS_")})
    return stored(fleet.settings, bundle_of(generator, threads))


def _downloaded(api: Running, job_id: str) -> tuple[int, float]:
    """(bytes, seconds) of a long table."""
    start, size = time.perf_counter(), 0
    with httpx.stream("GET", f"{api.url}/cohorts/{job_id}/records?format=long.csv", timeout=600) as answer:
        answer.raise_for_status()
        for block in answer.iter_bytes(1 << 20):
            size += len(block)
    return size, time.perf_counter() - start
