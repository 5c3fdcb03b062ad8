"""Requests to an S3 server: repeated with growing pauses while it is busy or away, and what its errors mean.

botocore's own retries are off: they share one budget among all threads of a client, so that many writers who are asked
to slow down at once would use it up and fail.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ehr.errors import StoreError, StoreFullError

T = TypeVar("T")

BUSY_STATUS = (408, 429, 500, 502, 503, 504)
BUSY = ("SlowDown", "RequestTimeout", "OperationAborted", "ConditionalRequestConflict")
FULL = ("XMinioStorageFull", "QuotaExceeded", "InsufficientCapacity")
MISSING = ("NoSuchKey", "NotFound", "404")
NOT_OFFERED = ("NotImplemented", "501")
REFUSED_STATUS = (401, 403)
WRITTEN_BEFORE = ("PreconditionFailed", "412")


@dataclass(frozen=True)
class Patience:
    """How long a request is repeated before it has failed."""

    seconds: float = 60
    first_pause: float = 0.2
    longest_pause: float = 5


ONCE = Patience(seconds=0)


@dataclass
class Requests:
    """`client` is botocore's: threads may share it, a forked child must not."""

    client: Any
    bucket: str
    patience: Patience = Patience()
    _jitter: random.Random = field(default_factory=random.Random)

    def __call__(self, operation: str, patience: Patience | None = None, **details: Any) -> dict[str, Any]:
        """One operation on the bucket, such as `head_object`; S3Error if it is refused or has failed too often."""
        request = getattr(self.client, operation)
        answer: dict[str, Any] = self.patiently(lambda: request(Bucket=self.bucket, **details), patience)
        return answer

    def body(self, **details: Any) -> bytes:
        """The bytes of `get_object`. A connection that breaks off in the middle is a request to repeat."""
        data: bytes = self.patiently(lambda: self.client.get_object(Bucket=self.bucket, **details)["Body"].read())
        return data

    def patiently(self, request: Callable[[], T], patience: Patience | None = None) -> T:
        from botocore.exceptions import BotoCoreError, ClientError

        patience = self.patience if patience is None else patience
        pause, deadline = patience.first_pause, time.monotonic() + patience.seconds
        while True:
            try:
                return request()
            except (BotoCoreError, ClientError) as error:
                known = S3Error(error)
            wait = pause * self._jitter.uniform(0.5, 1)
            if not known.passing or time.monotonic() + wait > deadline:
                raise known
            time.sleep(wait)
            pause = min(2 * pause, patience.longest_pause)


class S3Error(Exception):
    """What botocore raised, in the few words that matter here."""

    def __init__(self, error: Exception) -> None:
        response: dict[str, Any] = getattr(error, "response", None) or {}
        self.code = str(response.get("Error", {}).get("Code") or type(error).__name__)
        self.status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
        super().__init__(self.code)
        self.__cause__ = error
        self.passing = self.code in BUSY or self.status in BUSY_STATUS or (self.status == 0 and _broken_off(error))

    def as_store_error(self, name: str) -> StoreError:
        """For those who know no S3; `name` is what was asked for."""
        if self.code in MISSING:
            return StoreError(f"{name} is missing from the store")
        if self.code in FULL or self.status == 507:
            return StoreFullError("there is no room left in the store")
        if self.code == "NoSuchBucket":
            return StoreError("the store's bucket does not exist")
        if self.status in REFUSED_STATUS or "Credentials" in self.code:
            return StoreError(f"the store refuses access: {self.code}")
        return StoreError(f"the store does not answer as it should: {self.code}")


def _broken_off(error: Exception) -> bool:
    """Whether the server was not reached or its answer did not arrive whole."""
    from botocore import exceptions

    broken = (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.IncompleteReadError)
    return isinstance(error, broken) and not isinstance(error, exceptions.SSLError)
