"""What Prometheus sees: requests by route, how many jobs wait and run, for how long, and how they ended."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from sqlalchemy import func, select

from model_store.clock import now
from model_store.database import Database
from model_store.repositories import CountRepository, OutboxRepository
from model_store.repositories.counts import WHATS
from model_store.tables import Discard, Job
from worker.contract import KINDS, QUEUES

LATE_SECONDS = 3600.0
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)


class JobGauges:
    """Asked at every scrape, of rows that are few however many jobs have finished. Every API tells the same, and
    workers need no port of their own."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def describe(self) -> list[Metric]:
        return []  # nothing is asked of the database when the collector is registered

    def collect(self) -> Iterator[Metric]:
        with self.database.read_scope() as session:
            waiting = OutboxRepository(session).waiting()
            live = select(Job.state, func.count()).where(Job.state.in_(("running", "cancelling"))).group_by(Job.state)
            running = {str(state): int(count) for state, count in session.execute(live)}
            late = select(func.count()).select_from(Discard).where(Discard.due_at < now() - LATE_SECONDS)
            removals = session.scalars(late).one()
            counts = CountRepository(session).all()
        jobs = GaugeMetricFamily("ehr_d3pm_jobs", "Jobs that have not ended, by state", labels=["state"])
        queued = sum(count for count, _ in waiting.values())
        for state, count in ({"queued": queued, "running": 0, "cancelling": 0} | running).items():
            jobs.add_metric([state], count)
        yield jobs
        yield _by_queue("ehr_d3pm_queued_jobs", "Jobs that wait for a worker", {q: n for q, (n, _) in waiting.items()})
        ages = {queue: age for queue, (_, age) in waiting.items()}
        yield _by_queue("ehr_d3pm_queue_age_seconds", "For how long the oldest of them has waited", ages)
        yield GaugeMetricFamily("ehr_d3pm_late_removals", "Folders whose removal is an hour late", value=removals)
        times = CounterMetricFamily("ehr_d3pm_attempts", "Attempts begun and how they ended", labels=["kind", "what"])
        seconds = CounterMetricFamily("ehr_d3pm_attempt_seconds", "How long those took", labels=["kind", "what"])
        # From 0 on: Prometheus sees no increase in a series that begins with its first event, and would raise no alert.
        none_yet = {(kind, what): (0, 0.0) for kind in KINDS for what in WHATS}
        for labels, told in (none_yet | {(row.kind, row.what): (row.times, row.seconds) for row in counts}).items():
            times.add_metric(labels, told[0])
            seconds.add_metric(labels, told[1])
        yield times
        yield seconds


def _by_queue(name: str, told: str, values: Mapping[str, float]) -> Metric:
    gauge = GaugeMetricFamily(name, told, labels=["queue"])
    for queue, value in (dict.fromkeys(QUEUES.values(), 0.0) | dict(values)).items():
        gauge.add_metric([queue], value)
    return gauge


def known_method(method: str) -> str:
    """Any word can be sent as one."""
    return method if method in ("GET", "POST", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS") else "other"


class Metrics:
    """One registry per application, so that tests can have many."""

    def __init__(self, database: Database) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(JobGauges(database))
        labels = ["method", "route"]
        self._requests = Counter(
            "ehr_d3pm_http_requests", "Requests answered", [*labels, "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "ehr_d3pm_http_seconds", "Seconds per request", labels, buckets=BUCKETS, registry=self.registry
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request has ended."""
        method = known_method(method)
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self.registry)
