"""One change to Kombu's Redis transport, without which a worker goes deaf when the broker is lost in mid-job."""

from kombu.transport import redis, virtual
from redis.exceptions import RedisError


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


def apply() -> None:
    redis.Channel.QoS = ForgivingQoS
