"""Everything the service raises on purpose. No HTTP here: the edge maps these to answers, one row for each class.

Messages are shown to users: they name the field and what is allowed, and never contain record ids or codes of records.
`reason` is the stable word stored in a failed job's `error["type"]`.
"""

from typing import Any, ClassVar, Literal


class EhrError(Exception):
    """The root: catch this to catch every deliberate error of the service."""

    reason: ClassVar[str] = "internal"

    def __init_subclass__(cls, reason: str | None = None) -> None:
        if reason is not None:
            cls.reason = reason


class NotFoundError(EhrError, LookupError, reason="not-found"):
    """There is no such thing, or it belongs to someone else; the two look the same on purpose."""


class ConflictError(EhrError, reason="conflict"):
    """The request contradicts the present state, for example cancelling a job that has finished."""


class IdempotencyConflictError(ConflictError, reason="idempotency-conflict"):
    """The same Idempotency-Key came with another request."""


class WithheldError(ConflictError, reason="withheld"):
    """The cohort may not leave, and nobody has released it.

    `by`: what withholds it, and `why`; `report_id` names the report if it is one.
    """

    def __init__(
        self,
        message: str,
        cohort_id: str,
        by: Literal["model", "request", "report", "evaluation", "data"],
        why: str | None,
        report_id: str | None = None,
    ) -> None:
        super().__init__(message if why is None else f"{message} {why}")
        self.cohort_id, self.by, self.report_id = cohort_id, by, report_id


class UnevaluatedError(ConflictError, reason="not-evaluated"):
    """The cohort may not leave yet: its evaluation, the job `evaluation_id` if there is one, has not ended."""

    def __init__(self, message: str, evaluation_id: str | None = None) -> None:
        super().__init__(message)
        self.evaluation_id = evaluation_id


class RequestError(EhrError, ValueError, reason="bad-request"):
    """A setting, a payload or an id is outside what is allowed; the message says what is.

    `more` is plain JSON that helps to put it right, such as the nearest request that could be carried out.
    """

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message)
        self.more = more


class UnknownCodeError(RequestError, reason="unknown-code"):
    """A condition names codes that the vocabulary does not have; the message offers close ones."""


class ConditionError(RequestError, reason="bad-condition"):
    """A condition contradicts itself, or is too rare for its model."""


class ConfigError(RequestError):
    """A setting of a generator is outside what is allowed; the message says what is."""


class DataError(EhrError, ValueError, reason="bad-data"):
    """An upload or a dataset cannot be used."""


class TooLargeError(DataError, reason="too-large"):
    """An upload passes a limit, before or after it is decompressed."""


class TrainingError(EhrError, reason="training-failed"):
    """Training cannot go on, for example because the loss is no longer a number."""


class TrainingStopped(EhrError, reason="stopped"):
    """The caller asked training to stop; the last checkpoint holds everything done so far."""


class OutOfMemoryError(EhrError, MemoryError, reason="out-of-memory"):
    """There is not enough memory for a job."""


class StoreError(EhrError, reason="store-failed"):
    """The blob store cannot be read or written."""


class StoreFullError(StoreError, reason="store-full"):
    """There is no room left where results are written."""


class CorruptError(StoreError, reason="corrupt"):
    """Stored bytes are not the bytes that were written, or of a format this version cannot read."""


class StateError(CorruptError):
    """A saved state does not belong to this generator or was made by another version."""


class OutsideError(EhrError, reason="outside"):
    """A source that records are fetched from, or a sink that a cohort is written to, does not do its part."""


class AccessError(EhrError, reason="unauthorized"):
    """The API key is unknown or revoked. Of a revoked one, `owner` and `key_prefix` say whose it was."""

    def __init__(self, message: str, owner: str | None = None, key_prefix: str | None = None) -> None:
        super().__init__(message)
        self.owner, self.key_prefix = owner, key_prefix


class ScopeError(AccessError, reason="forbidden"):
    """The API key is valid but lacks the scope."""


class ExposureError(EhrError, reason="exposure"):
    """A key has had as much of a model as it may have.

    `counted` is what there is too much of (`records`, `conditions` or `small_conditions`), `cap` how much it may be,
    `used` how much of it went before, `asked` how much this request would add.
    """

    def __init__(self, counted: str, cap: int, used: int, asked: int) -> None:
        super().__init__(f"{counted}: {used} of {cap} are used")
        self.counted, self.cap, self.used, self.asked = counted, cap, used, asked


class QuotaError(EhrError, reason="quota"):
    """An owner has as much at a time as they may have.

    `counted` is what there is too much of, a field of model_store.limits.Limits; `cap` how much it may be, `used` how
    much there is, `asked` how much this request would add.
    """

    def __init__(self, counted: str, cap: int, used: int, asked: int) -> None:
        super().__init__(f"{counted}: {used} of {cap} are used")
        self.counted, self.cap, self.used, self.asked = counted, cap, used, asked


class TooManyFailuresError(EhrError, reason="too-many-failures"):
    """So many requests of one sender came without a valid key that the next ones are not looked at for a while."""

    def __init__(self, message: str, wait_seconds: float) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds


class TimeLimitError(EhrError, reason="time-limit"):
    """A job has run for as long as one may."""


class SchemaError(EhrError, reason="schema"):
    """The database's schema is not the one this version needs."""


class JobInterruptedError(EhrError, reason="interrupted"):
    """The work is not wanted any more, or not here: no fault of the job's, and nothing to record as one."""


class LeaseLostError(JobInterruptedError, reason="lease-lost"):
    """Another attempt has taken over, or may have; this one must write nothing more."""


class JobCancelledError(JobInterruptedError, reason="cancelled"):
    """Someone asked the job to stop."""


class TurnOverError(JobInterruptedError, reason="turn-over"):
    """Somebody else's job has waited for long enough: this one goes on later, from where it is."""


class ComeBackError(JobInterruptedError, reason="waiting"):
    """Somebody outside is not ready yet: the job goes on after so many seconds, and holds no worker until then."""

    def __init__(self, message: str, wait_seconds: float) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds


class WorkerStoppingError(JobInterruptedError, reason="worker-stopping"):
    """The worker is told to stop: the job goes on elsewhere."""
