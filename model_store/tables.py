"""The tables. Times are the database's clock in seconds since 1970 (see clock.py); JSON columns hold plain JSON.

Every row that belongs to someone carries `owner`. Rows of datasets, models, cohorts and reports exist only once their
files are complete: they are inserted in the transaction that marks their job as succeeded.
"""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from model_store.clock import now
from model_store.columns import HASH, ID, OWNER, SERIAL, Base
from model_store.use_tables import JobCount as JobCount
from model_store.use_tables import Owner as Owner


class Dataset(Base):
    """Real records at rest. `summary` is what may leave the service: small cells are already suppressed."""

    __tablename__ = "datasets"
    __table_args__ = (Index(None, "owner", "created_at", "id"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    owner: Mapped[str] = mapped_column(OWNER)
    name: Mapped[str] = mapped_column(String(200))
    job_id: Mapped[str] = mapped_column(ID)
    prefix: Mapped[str] = mapped_column(String(200))  # of the blobs
    manifest_hash: Mapped[str] = mapped_column(HASH)
    data_hash: Mapped[str] = mapped_column(HASH)
    vocabulary_hash: Mapped[str] = mapped_column(HASH)
    n_codes: Mapped[int]
    bytes: Mapped[int | None] = mapped_column(BigInteger)  # in the store; None: made before this was counted
    summary: Mapped[dict[str, Any]]
    created_at: Mapped[float] = mapped_column(default=now())


class Model(Base):
    """A trained generator; its bundle lies under `prefix`."""

    __tablename__ = "models"
    __table_args__ = (Index(None, "owner", "created_at", "id"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    owner: Mapped[str] = mapped_column(OWNER)
    name: Mapped[str] = mapped_column(String(200))
    job_id: Mapped[str] = mapped_column(ID)
    dataset_id: Mapped[str] = mapped_column(ID, index=True)  # no foreign key: a model outlives its dataset
    generator: Mapped[str] = mapped_column(String(40))
    prefix: Mapped[str] = mapped_column(String(200))
    manifest_hash: Mapped[str] = mapped_column(HASH)
    n_codes: Mapped[int]
    bytes: Mapped[int | None] = mapped_column(BigInteger)
    details: Mapped[dict[str, Any]]  # settings, seed, curve, hashes: what owners may see
    created_at: Mapped[float] = mapped_column(default=now())


class Job(Base):
    """The truth about a piece of work. States: queued, running, cancelling, cancelled, succeeded, failed."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index(None, "owner", "created_at", "id"),
        # the sweeper looks at live jobs only, however many finished ones there are
        Index(
            "ix_jobs_live",
            "lease_until",
            postgresql_where=text("state IN ('running', 'cancelling')"),
            sqlite_where=text("state IN ('running', 'cancelling')"),
        ),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    owner: Mapped[str] = mapped_column(OWNER)
    kind: Mapped[str] = mapped_column(String(20))
    state: Mapped[str] = mapped_column(String(20), default="queued")
    priority: Mapped[int] = mapped_column(default=0, server_default="0")  # among its owner's jobs; the highest first
    payload: Mapped[dict[str, Any]]
    result: Mapped[dict[str, Any] | None]
    error: Mapped[dict[str, Any] | None]  # {"type": a stable word, "detail": a sentence}
    # {"steps": [{"name", "value", "maximum", "unit"}...], "step": name, "remaining_seconds": float | None}
    progress: Mapped[dict[str, Any] | None]
    checkpoint: Mapped[dict[str, Any] | None]  # {"prefix", "sha256" of the manifest, "step"}
    attempt: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int]
    worker: Mapped[str | None] = mapped_column(String(120))  # unique to one attempt: who holds the lease
    lease_until: Mapped[float | None]
    ran_seconds: Mapped[float] = mapped_column(default=0.0, server_default="0")  # in attempts before this one
    created_at: Mapped[float] = mapped_column(default=now())
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]


class JobEvent(Base):
    """What happened to a job; `id` grows with time and is the SSE event id."""

    __tablename__ = "job_events"
    __table_args__ = (Index(None, "job_id", "id"),)

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(20))  # "state" or "progress"
    data: Mapped[dict[str, Any]]
    created_at: Mapped[float] = mapped_column(default=now())


class Outbox(Base):
    """One row for each queued job: its message is due at `due_at`, again and again, until someone claims the job."""

    __tablename__ = "outbox"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    task: Mapped[str] = mapped_column(String(80))
    queue: Mapped[str] = mapped_column(String(40))
    due_at: Mapped[float] = mapped_column(default=now(), index=True)
    published: Mapped[int] = mapped_column(default=0)  # how often
    queued_at: Mapped[float | None] = mapped_column(default=now())
    room_until: Mapped[float | None]  # until then a running job is making room for this one


class Cohort(Base):
    """A finished cohort; its id is the generate job's id."""

    __tablename__ = "cohorts"
    __table_args__ = (Index(None, "owner", "created_at", "job_id"),)

    job_id: Mapped[str] = mapped_column(ID, primary_key=True)
    owner: Mapped[str] = mapped_column(OWNER)
    model_id: Mapped[str] = mapped_column(ID, index=True)
    dataset_id: Mapped[str] = mapped_column(ID)
    n_records: Mapped[int]
    bytes: Mapped[int | None] = mapped_column(BigInteger)
    prefix: Mapped[str] = mapped_column(String(200))
    manifest_hash: Mapped[str] = mapped_column(HASH)
    manifest: Mapped[dict[str, Any]]
    created_at: Mapped[float] = mapped_column(default=now())


class CohortPart(Base):
    """A part of a cohort, taken by any worker under a lease of its own. States: pending, running, done."""

    __tablename__ = "cohort_parts"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    first_record: Mapped[int]
    n_records: Mapped[int]
    state: Mapped[str] = mapped_column(String(20), default="pending")
    worker: Mapped[str | None] = mapped_column(String(120))
    lease_until: Mapped[float | None]
    blob: Mapped[str | None] = mapped_column(String(200))
    sha256: Mapped[str | None] = mapped_column(HASH)
    bytes: Mapped[int | None] = mapped_column(BigInteger)


class CohortRequest(Base):
    """What a generate job was asked for, in one form for all wordings. It outlives the cohort and the model: what was
    withheld once stays known."""

    __tablename__ = "cohort_requests"

    job_id: Mapped[str] = mapped_column(ID, primary_key=True)
    owner: Mapped[str] = mapped_column(OWNER)
    model_id: Mapped[str] = mapped_column(ID, index=True)
    request: Mapped[dict[str, Any]]  # of ehr.canonical_request
    withholds: Mapped[str | None] = mapped_column(Text)  # why what it asks for may not leave, if it may not
    model_withholds: Mapped[str | None] = mapped_column(Text)  # why nothing of its model may, once the model is gone


class ReportRow(Base):
    """A versioned JSON report on the cohort of `cohort_job_id`, made by `job_id`: beside real records for custodians of
    those, by an evaluate job; or by itself for everyone, by the generate job that made the cohort."""

    __tablename__ = "reports"

    job_id: Mapped[str] = mapped_column(ID, primary_key=True)
    cohort_job_id: Mapped[str] = mapped_column(ID, index=True)
    owner: Mapped[str] = mapped_column(OWNER)
    reader: Mapped[str] = mapped_column(String(20), default="custodian", server_default="custodian")  # or "shareable"
    version: Mapped[int]
    body: Mapped[dict[str, Any]]
    privacy: Mapped[str | None] = mapped_column(String(20))  # good, caution or fail; None: it does not judge privacy
    withholds: Mapped[str | None] = mapped_column(Text)  # why the cohort may not leave, if it may not
    created_at: Mapped[float] = mapped_column(default=now())


class Release(Base):
    """A custodian (scope `data`) has let a withheld cohort go, whatever was known against it at that moment."""

    __tablename__ = "releases"
    __table_args__ = (Index(None, "cohort_job_id", "created_at"),)

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    cohort_job_id: Mapped[str] = mapped_column(ID)
    owner: Mapped[str] = mapped_column(OWNER)
    key_prefix: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float] = mapped_column(default=now())


class Discard(Base):
    """Blobs to remove: written in the transaction that made them useless, carried out by a sweeper until it succeeds.

    Everything under the folder `prefix` goes, except what lies under a folder (or is a blob) named in `keep`.
    """

    __tablename__ = "discards"

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    prefix: Mapped[str] = mapped_column(String(200), index=True)
    keep: Mapped[list[str]]
    due_at: Mapped[float] = mapped_column(default=now(), index=True)


class ApiKey(Base):
    """A key is shown once; only its sha256 stays. `prefix` finds it and may be shown."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    owner: Mapped[str] = mapped_column(OWNER)
    name: Mapped[str] = mapped_column(String(200))
    prefix: Mapped[str] = mapped_column(String(16), unique=True)
    key_hash: Mapped[str] = mapped_column(HASH)
    scopes: Mapped[list[str]]
    caps: Mapped[dict[str, Any] | None]  # of exposure, where they are other than the settings'
    created_at: Mapped[float] = mapped_column(default=now())
    revoked_at: Mapped[float | None]


class LoginSession(Base):
    """Someone who logged in with a key, until they log out, it expires, or the key is revoked. Only the token's sha256
    stays."""

    __tablename__ = "sessions"

    token_hash: Mapped[str] = mapped_column(HASH, primary_key=True)
    key_id: Mapped[str] = mapped_column(ID)
    created_at: Mapped[float] = mapped_column(default=now())
    expires_at: Mapped[float]


class Exposure(Base):
    """How much one key has had of one model: the row that simultaneous submissions wait for. It outlives the model."""

    __tablename__ = "exposures"
    __table_args__ = (Index(None, "owner", "model_id"),)

    model_id: Mapped[str] = mapped_column(ID, primary_key=True)
    holder: Mapped[str] = mapped_column(String(16), primary_key=True)  # prefix of a key, or "local"
    owner: Mapped[str] = mapped_column(OWNER)
    requests: Mapped[int] = mapped_column(default=0)
    records: Mapped[int] = mapped_column(BigInteger, default=0)
    conditions: Mapped[int] = mapped_column(default=0)  # distinct ones
    small_conditions: Mapped[int] = mapped_column(default=0)  # of those, the ones that hardly any patient satisfies
    first_at: Mapped[float] = mapped_column(default=now())
    last_at: Mapped[float] = mapped_column(default=now())


class ExposedCondition(Base):
    """A condition that one key has asked one model for, as the hash of its canonical form: no codes are kept here."""

    __tablename__ = "exposed_conditions"

    model_id: Mapped[str] = mapped_column(ID, primary_key=True)
    holder: Mapped[str] = mapped_column(String(16), primary_key=True)
    condition: Mapped[str] = mapped_column(HASH, primary_key=True)
    created_at: Mapped[float] = mapped_column(default=now())


class Audit(Base):
    """Who did what to which thing; written in the transaction that did it. Refusals are counted by the minute."""

    __tablename__ = "audit"
    __table_args__ = (Index(None, "owner", "id"),)

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    owner: Mapped[str] = mapped_column(OWNER)
    key_prefix: Mapped[str | None] = mapped_column(String(16))
    action: Mapped[str] = mapped_column(String(40))
    target: Mapped[str] = mapped_column(String(80))
    detail: Mapped[dict[str, Any]]
    created_at: Mapped[float] = mapped_column(default=now())


class IdempotencyKeyRow(Base):
    """The job that an Idempotency-Key of an owner on a route stands for. `status` and `body` are not in use."""

    __tablename__ = "idempotency_keys"

    owner: Mapped[str] = mapped_column(OWNER, primary_key=True)
    route: Mapped[str] = mapped_column(String(80), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request_hash: Mapped[str] = mapped_column(HASH)
    job_id: Mapped[str | None] = mapped_column(ID)
    status: Mapped[int | None]
    body: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[float] = mapped_column(default=now(), index=True)
