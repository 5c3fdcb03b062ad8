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
SMALL_SECONDS = 1.0
MANY = 10_000


class Stand:
    """Slots that claim when they are free, by a clock of their own."""

    def __init__(self, url: str) -> None:
        migrate.upgrade(url)
        self.database, self.clock = Database(url), 0.0
        self.claims: list[float] = []  # real seconds of each
        self.submitted: dict[str, float] = {}
        self.waits: dict[str, float] = {}

    def submit(self, owner: str) -> None:
        with self.database.session_scope() as session:
            payload = {"model_id": new_id(MODEL), "n": 1}
            job = JobRepository(session).submit(owner, "generate", *ROUTES["generate"], payload, 3)
            session.execute(update(Outbox).where(Outbox.job_id == job.id).values(published=1))
        self.submitted[job.id] = self.clock

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
    """`fair.longest_wait_s` of small jobs that come one by one, when everybody has had a turn and the queues of all
    others are full, `fair.first_wait_s` of the first of them; `fair.claim_ms`."""
    jobs, small_jobs = (60, 3) if quick else (1_000, 20)
    with tempfile.TemporaryDirectory() as folder:
        stand = Stand(f"sqlite:///{Path(folder) / 'fair.sqlite'}")
        for i in range(jobs):
            stand.submit(f"owner {i % OWNERS}")
        running = [(TURN_SECONDS * (i + 1) / SLOTS, i, claim) for i in range(SLOTS) if (claim := stand.claim())]
        heapq.heapify(running)
        small: list[str] = []
        left = OWNERS  # turns until everybody has had one
        while len(small) < small_jobs or any(job_id not in stand.waits for job_id in small):
            stand.clock, slot, claim = heapq.heappop(running)
            stand.end(claim, SMALL_SECONDS if claim.job_id in small else TURN_SECONDS)
            left -= 1
            if left <= 0 and len(small) < small_jobs and all(job_id in stand.waits for job_id in small):
                stand.submit("somebody else")
                small.append(next(reversed(stand.submitted)))
            taken = stand.claim()
            if taken is None:
                break
            length = SMALL_SECONDS if taken.job_id in small else TURN_SECONDS
            heapq.heappush(running, (stand.clock + length, slot, taken))
        stand.database.close()
    waits = [stand.waits[job_id] for job_id in small]
    claim_ms = 1000 * statistics.median(stand.claims)
    show(
        f"{jobs:,} queued jobs of {OWNERS} owners, {SLOTS} slots, turns of {TURN_SECONDS:g} s",
        ["small jobs", "wait of the first, s", "longest wait, s", "median claim, ms"],
        [[str(len(small)), f"{waits[0]:.1f}", f"{max(waits):.1f}", f"{claim_ms:.1f}"]],
    )
    figures.add("fair.first_wait_s", waits[0], "s")
    figures.add("fair.longest_wait_s", max(waits), "s")
    figures.add("fair.claim_ms", claim_ms, "ms")
