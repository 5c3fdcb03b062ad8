"""What Prometheus sees: requests by route, and how many jobs wait and run."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy import func, select

from model_store.database import Database
from model_store.repositories import OutboxRepository
from model_store.tables import Job

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)


class JobGauges:
    """Asked at every scrape. Only live jobs are counted: their index is short however many have finished."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def describe(self) -> list[GaugeMetricFamily]:
        return []  # nothing is asked of the database when the collector is registered

    def collect(self) -> Iterator[GaugeMetricFamily]:
        with self.database.read_scope() as session:
            waiting = OutboxRepository(session).waiting()
            live = select(Job.state, func.count()).where(Job.state.in_(("running", "cancelling"))).group_by(Job.state)
            counts = {str(state): int(count) for state, count in session.execute(live)}
        jobs = GaugeMetricFamily("ehr_d3pm_jobs", "Jobs that have not ended, by state", labels=["state"])
        for state, count in ({"queued": waiting, "running": 0, "cancelling": 0} | counts).items():
            jobs.add_metric([state], count)
        yield jobs


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
        """A request has ended. Methods are bounded: any word can be sent as one."""
        method = method if method in ("GET", "POST", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS") else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self.registry)
