"""A thousand queued jobs of twenty owners: how long the small job of somebody else waits.

The database, its rows and every claim are real; the work is not: a job "takes" its seconds by having its start set
back, so that hours of turns pass in seconds.
"""

import heapq
import statistics
import tempfile
import time
from pathlib import Path

from sqlalchemy import update

from benchmarks._harness import Figures, show
from model_store import migrate
from model_store.clock import now
from model_store.database import Database
from model_store.ids import MODEL, new_id
from model_store.repositories import JobRepository, LeaseRepository, TurnRepository
from model_store.repositories.leases import Claim
from model_store.tables import Job, Outbox
from worker.contract import QUEUES, ROUTES

OWNERS, SLOTS = 20, 4
TURN_SECONDS = 20.0  # of a long job, after which it makes way
SMALL_SECONDS, PAUSE_SECONDS = 1.0, 20.0
MANY = 10_000
Running = list[tuple[float, int, Claim]]  # when a slot is free, which one, and what it does until then


class Stand:
    """Slots that claim when they are free, by a clock of their own."""

    def __init__(self, url: str) -> None:
        migrate.upgrade(url)
        self.database, self.clock = Database(url), 0.0
        self.claims: list[float] = []  # real seconds of each
        self.submitted: dict[str, float] = {}
        self.waits: dict[str, float] = {}

    def submit(self, owner: str, at: float | None = None) -> str:
        with self.database.session_scope() as session:
            payload = {"model_id": new_id(MODEL), "n": 1}
            job = JobRepository(session).submit(owner, "generate", *ROUTES["generate"], payload, 3)
            session.execute(update(Outbox).where(Outbox.job_id == job.id).values(published=1))
        self.submitted[job.id] = self.clock if at is None else at
        return job.id

    def claim(self) -> Claim | None:
        begun = time.perf_counter()
        with self.database.session_scope() as session:
            claim = TurnRepository(session).claim_next(list(QUEUES.values()), "w", 3600, MANY)
        self.claims.append(time.perf_counter() - begun)
        if claim is not None:
            self.waits.setdefault(claim.job_id, self.clock - self.submitted[claim.job_id])
        return claim

    def end(self, claim: Claim, seconds: float) -> None:
        with self.database.session_scope() as session:
            session.execute(update(Job).where(Job.id == claim.job_id).values(started_at=now() - seconds))
            LeaseRepository(session).succeed(claim, {})


def fair(figures: Figures, quick: bool) -> None:
    """`fair.longest_wait_s` of small jobs of somebody who asks every PAUSE_SECONDS, when everybody has had a turn and
    the queues of all others are full; `fair.without_pause_s` of somebody who asks without one, has soon had a turn's
    worth and waits as the others do; `fair.claim_ms`."""
    jobs, small_jobs = (100, 3) if quick else (1_000, 20)
    with tempfile.TemporaryDirectory() as folder:
        stand = Stand(f"sqlite:///{Path(folder) / 'fair.sqlite'}")
        for i in range(jobs):
            stand.submit(f"owner {i % OWNERS}")
        running = [(TURN_SECONDS * (i + 1) / SLOTS, i, claim) for i in range(SLOTS) if (claim := stand.claim())]
        heapq.heapify(running)
        for _ in range(OWNERS):
            take_turn(stand, running, set())
        now_and_then = waits(stand, running, "somebody", small_jobs, PAUSE_SECONDS)
        without_pause = waits(stand, running, "somebody in a hurry", small_jobs, 0.0)
        stand.database.close()
    claim_ms = 1000 * statistics.median(stand.claims)
    show(
        f"{jobs:,} queued jobs of {OWNERS} owners, {SLOTS} slots, turns of {TURN_SECONDS:g} s",
        ["small jobs", f"longest wait, one every {PAUSE_SECONDS:g} s", "one after the other", "median claim, ms"],
        [[str(small_jobs), f"{max(now_and_then):.1f}", f"{max(without_pause):.1f}", f"{claim_ms:.1f}"]],
    )
    figures.add("fair.longest_wait_s", max(now_and_then), "s")
    figures.add("fair.without_pause_s", max(without_pause), "s")
    figures.add("fair.claim_ms", claim_ms, "ms")


def take_turn(stand: Stand, running: Running, small: set[str]) -> None:
    """The slot that is free first takes the job that is next."""
    stand.clock, slot, claim = heapq.heappop(running)
    stand.end(claim, SMALL_SECONDS if claim.job_id in small else TURN_SECONDS)
    taken = stand.claim()
    if taken is None:
        raise RuntimeError("the queues have run empty: nobody had to wait")
    length = SMALL_SECONDS if taken.job_id in small else TURN_SECONDS
    heapq.heappush(running, (stand.clock + length, slot, taken))


def waits(stand: Stand, running: Running, owner: str, jobs: int, pause: float) -> list[float]:
    """How long each of so many small jobs of an owner waits; one comes when the last has begun and a pause is over."""
    small: set[str] = set()
    comes_at = running[0][0]
    while len(small) < jobs or not small <= stand.waits.keys():
        if len(small) < jobs and small <= stand.waits.keys() and running[0][0] >= comes_at:
            small.add(stand.submit(owner, at=comes_at))
            comes_at += pause
        take_turn(stand, running, small)
        comes_at = max(comes_at, stand.clock)
    return [stand.waits[job_id] for job_id in small]
