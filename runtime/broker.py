"""Sending hints to workers, and knowing which there are. A call reaches the broker within seconds or raises: nobody
waits for a broker."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from celery import Celery

from ehr.errors import EhrError

# Recovery is by lease, never by redelivery: the broker must not hand a long job's message to a second worker.
VISIBILITY_TIMEOUT_SECONDS = 30 * 86_400
CONNECT_SECONDS = 2
PRESENCE_KEY = "ehr-d3pm:worker:"
PRESENCE_SECONDS = 15


@dataclass(frozen=True)
class WorkerFacts:
    """What is known of a worker: how many jobs of generation it runs at a time, and on what."""

    name: str
    host: str
    slots: int
    cores: int

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "WorkerFacts":
        """As a worker has announced itself; one of a later version may tell more."""
        return cls(**{each.name: facts[each.name] for each in fields(cls)})


class BrokerError(EhrError):
    """The broker does not answer; the message stays in the outbox."""

    reason = "broker-unavailable"


class Broker:
    """A producer of messages; safe to use from many threads."""

    def __init__(self, url: str) -> None:
        self.app = Celery("ehr_d3pm_producer", broker=url, set_as_current=False)
        self.app.conf.update(
            task_ignore_result=True,
            broker_connection_retry=False,
            broker_transport_options=transport_options(url) | {"max_retries": 1, "interval_start": 0},
        )

    def send(self, task: str, queue: str, *arguments: str) -> None:
        """Hand over one message, or BrokerError."""
        try:
            self.app.send_task(task, args=list(arguments), queue=queue, ignore_result=True, retry=False)
        except Exception as error:  # kombu, redis and the socket each have their own words for it
            raise BrokerError(f"the broker does not answer: {type(error).__name__}") from error

    def check(self) -> None:
        """BrokerError unless the broker answers; for readiness."""
        with self._connection():
            pass

    def announce(self, worker: WorkerFacts) -> None:
        """Note that a worker lives; forgotten unless noted again within PRESENCE_SECONDS."""
        with self._connection() as connection:
            client = connection.default_channel.client
            client.set(f"{PRESENCE_KEY}{worker.name}", json.dumps(asdict(worker)), ex=PRESENCE_SECONDS)

    def workers(self) -> list[WorkerFacts]:
        """The workers that live. BrokerError if nobody can say."""
        with self._connection() as connection:
            client = connection.default_channel.client
            keys = list(client.scan_iter(f"{PRESENCE_KEY}*", count=1000))
            found = client.mget(keys) if keys else []
        return [WorkerFacts.of(json.loads(facts)) for facts in found if facts is not None]

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """A connection for as long as the block runs; BrokerError if it cannot be made or breaks."""
        try:
            with self.app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_SECONDS)
                yield connection
        except Exception as error:
            raise BrokerError(f"the broker does not answer: {type(error).__name__}") from error

    def close(self) -> None:
        self.app.close()


def transport_options(url: str) -> dict[str, Any]:
    """What producers and workers must agree on."""
    options: dict[str, Any] = {
        "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": 20,  # above the seconds a worker's blocking pop may take
    }
    if url.startswith("redis+socket:"):
        del options["socket_connect_timeout"]  # a unix socket connects or refuses at once, and takes no such option
    return options
