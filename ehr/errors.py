"""Everything the service raises on purpose. No HTTP here: the edge maps these to answers, one row for each class.

Messages are shown to users: they name the field and what is allowed, and never contain record ids or codes of records.
`reason` is the stable word stored in a failed job's `error["type"]`.
"""

from typing import Any, ClassVar


class EhrError(Exception):
    """The root: catch this to catch every deliberate error of the service."""

    reason: ClassVar[str] = "internal"


class NotFoundError(EhrError, LookupError):
    """There is no such thing, or it belongs to someone else; the two look the same on purpose."""

    reason = "not-found"


class ConflictError(EhrError):
    """The request contradicts the present state, for example cancelling a job that has finished."""

    reason = "conflict"


class IdempotencyConflictError(ConflictError):
    """The same Idempotency-Key came with another request."""

    reason = "idempotency-conflict"


class WithheldError(ConflictError):
    """The cohort may not leave: its privacy evaluation failed or crashed and nobody has released it.

    `report_id` names the report that withholds it; None if its evaluation gave none.
    """

    reason = "withheld"

    def __init__(self, message: str, cohort_id: str, report_id: str | None = None) -> None:
        super().__init__(message)
        self.cohort_id, self.report_id = cohort_id, report_id


class UnevaluatedError(ConflictError):
    """The cohort may not leave yet: its evaluation, the job `evaluation_id` if there is one, has not ended."""

    reason = "not-evaluated"

    def __init__(self, message: str, evaluation_id: str | None = None) -> None:
        super().__init__(message)
        self.evaluation_id = evaluation_id


class RequestError(EhrError, ValueError):
    """A setting, a payload or an id is outside what is allowed; the message says what is.

    `more` is plain JSON that helps to put it right, such as the nearest request that could be carried out.
    """

    reason = "bad-request"

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message)
        self.more = more


class UnknownCodeError(RequestError):
    """A condition names codes that the vocabulary does not have; the message offers close ones."""

    reason = "unknown-code"


class ConditionError(RequestError):
    """A condition contradicts itself, or is too rare for its model."""

    reason = "bad-condition"


class ConfigError(RequestError):
    """A setting of a generator is outside what is allowed; the message says what is."""


class DataError(EhrError, ValueError):
    """An upload or a dataset cannot be used."""

    reason = "bad-data"


class TooLargeError(DataError):
    """An upload passes a limit, before or after it is decompressed."""

    reason = "too-large"


class TrainingError(EhrError):
    """Training cannot go on, for example because the loss is no longer a number."""

    reason = "training-failed"


class TrainingStopped(EhrError):
    """The caller asked training to stop; the last checkpoint holds everything done so far."""

    reason = "stopped"


class StoreError(EhrError):
    """The blob store cannot be read or written."""

    reason = "store-failed"


class StoreFullError(StoreError):
    """There is no room left where results are written."""

    reason = "store-full"


class CorruptError(StoreError):
    """Stored bytes are not the bytes that were written, or of a format this version cannot read."""

    reason = "corrupt"


class StateError(CorruptError):
    """A saved state does not belong to this generator or was made by another version."""


class AccessError(EhrError):
    """The API key is unknown or revoked."""

    reason = "unauthorized"


class ScopeError(AccessError):
    """The API key is valid but lacks the scope."""

    reason = "forbidden"


class SchemaError(EhrError):
    """The database's schema is not the one this version needs."""

    reason = "schema"


class LeaseLostError(EhrError):
    """Another attempt has taken over; this one must write nothing more."""

    reason = "lease-lost"


class JobCancelledError(EhrError):
    """Someone asked the job to stop."""

    reason = "cancelled"
