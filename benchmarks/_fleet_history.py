"""A hundred thousand jobs in history: what claiming, sweeping, listing and scraping cost then, beside a hundred."""

import statistics
from collections.abc import Callable

import httpx
from sqlalchemy import delete

from benchmarks._fleet_parts import new_fleet
from benchmarks._harness import Figures, progress_bar, show, timed
from benchmarks._service_data import add_jobs
from model_store.blobs import FileStore
from model_store.database import Database
from model_store.ids import MODEL, new_id
from model_store.repositories import JobRepository, LeaseRepository, TurnRepository
from model_store.tables import Job
from runtime.broker import Broker
from runtime.sweeper import Sweeper
from worker.contract import QUEUES, ROUTES

OWNER = "local"
FEW, MANY, QUICK_MANY = 100, 100_000, 2_000
MOST = 10_000


def history(figures: Figures, quick: bool) -> None:
    """`history.{what}_ms` and `history.{what}_growth`, over what it was with a hundred."""
    tries = 10 if quick else 50
    with new_fleet() as fleet:
        fleet.migrate()
        settings = fleet.settings
        database, api = Database(settings.resolved_database_url), fleet.api()
        store, broker = FileStore(f"file://{fleet.folder / 'store'}"), Broker(settings.resolved_redis_url)
        sweeper = Sweeper(database, broker, store, ROUTES, settings)
        with httpx.Client(base_url=api.url, timeout=120) as http:
            add_jobs(database, OWNER, FEW, lambda *_: None)
            asked = http.get("/jobs?limit=1").json()["items"][0]["id"]
            work: dict[str, Callable[[], object]] = {
                "claim": lambda: _claim_and_end(database),
                "sweep": sweeper.sweep,
                "get": lambda: http.get(f"/jobs/{asked}").raise_for_status(),
                "list": lambda: http.get("/jobs?limit=50").raise_for_status(),
                "metrics": lambda: http.get("/metrics").raise_for_status(),
            }
            few = {name: _milliseconds(each, tries) for name, each in work.items()}
            with progress_bar("jobs in history") as advance:
                add_jobs(database, OWNER, QUICK_MANY if quick else MANY, advance)
            many = {name: _milliseconds(each, tries) for name, each in work.items()}
        broker.close()
        database.close()
    rows = [[name, f"{few[name]:.1f}", f"{many[name]:.1f}"] for name in work]
    show("cost with a history", ["", f"{FEW} jobs, ms", f"{QUICK_MANY if quick else MANY:,} jobs, ms"], rows)
    for name in work:
        figures.add(f"history.{name}_ms", many[name], "ms")
        figures.add(f"history.{name}_growth", many[name] / few[name], "ratio")


def _claim_and_end(database: Database) -> None:
    """Submit, claim by turns and end a job, and take it away again."""
    with database.session_scope() as session:
        payload = {"model_id": new_id(MODEL), "n": 1}
        JobRepository(session).submit(OWNER, "generate", *ROUTES["generate"], payload, 3)
    with database.session_scope() as session:
        claim = TurnRepository(session).claim_next(list(QUEUES.values()), "w", 3600, MOST)
    assert claim is not None
    with database.session_scope() as session:
        LeaseRepository(session).succeed(claim, {})
        session.execute(delete(Job).where(Job.id == claim.job_id))


def _milliseconds(work: Callable[[], object], tries: int) -> float:
    """The median; once before it for what is done once."""
    work()
    seconds: list[float] = []
    for _ in range(tries):
        with timed() as took:
            work()
        seconds += took
    return 1000 * statistics.median(seconds)
