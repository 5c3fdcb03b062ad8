"""Changes to Celery and Kombu, without which a worker goes deaf when the broker is lost in mid-job, ends when something
that is no message lies in its queue, and seems dead while it waits for a broker to come back."""

import base64
import json
import logging
from collections.abc import Callable
from queue import Empty
from typing import Any

from celery.worker.consumer import consumer
from kombu.transport import redis, virtual
from redis.exceptions import RedisError

from ehr.errors import EhrError
from model_store.ids import JOB, checked_id
from worker.contract import HELP_TASK, TASKS

log = logging.getLogger(__name__)
KNOWN_TASKS = frozenset({HELP_TASK, *TASKS.values()})


class ForgivingQoS(redis.QoS):
    """An acknowledgement that cannot be delivered still makes room for the next message.

    Kombu counts a message as being worked on until the broker has heard of its end. If the broker is away at that
    moment the count never goes down, the worker takes no further message and, taking none, never sees that its
    connection is gone. The broker may deliver the message again: it finds no job to claim.
    """

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]
        except (RedisError, OSError):
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
            raise


class ForgivingChannel(redis.Channel):
    """What is not even JSON is dropped. It has left the queue by then, and nothing of it may be logged."""

    QoS = ForgivingQoS

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except ValueError:
            log.error("something that is no message was dropped from a queue")
            raise Empty from None


def is_ours(message: Any) -> bool:
    """Whether it is a message as the broker client of this service writes them. A job whose message is dropped loses
    nothing: its row stays in the outbox."""
    try:
        properties, headers = message["properties"], message["headers"]
        body = message["body"]
        if properties.get("body_encoding") == "base64":
            body = base64.b64decode(body)
        (job_id,), _, _ = json.loads(body)
        checked_id(job_id, JOB)
        described = isinstance(headers["id"], str) and isinstance(properties["delivery_info"], dict)
        return described and isinstance(properties["delivery_tag"], str) and headers["task"] in KNOWN_TASKS
    except (ValueError, TypeError, LookupError, AttributeError, EhrError):
        return False


def apply(while_waiting: Callable[[], None]) -> None:
    """`while_waiting` is called every second in which there is no broker: Celery's event loop stands still then."""
    deliver, told_to_stop = redis.Transport._deliver, consumer.maybe_shutdown

    def deliver_ours(transport: redis.Transport, message: Any, queue: str) -> None:
        if is_ours(message):
            deliver(transport, message, queue)  # type: ignore[no-untyped-call]
        else:
            log.error("something that is no message of ours was dropped from a queue", extra={"queue": queue})

    def wait() -> None:
        while_waiting()
        told_to_stop()

    consumer.maybe_shutdown = wait
    redis.Transport.Channel = ForgivingChannel
    redis.Transport._deliver = deliver_ours  # type: ignore[method-assign, assignment]
