"""Every variable the service reads from its environment, in one place.

With nothing set, everything lives in `DATA_DIR`: SQLite, a private Valkey on a unix socket, and files. Variables are
read once per process by `get_settings`; mathematics never sees them.
"""

import hashlib
import tempfile
from functools import cache, cached_property
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from model_store.limits import Limits
from model_store.timeouts import Timeouts
from runtime.places import Places, sink_places, source_places
from runtime.traces import Tracer

MIB, GIB = 1 << 20, 1 << 30
LONGEST_SOCKET_PATH = 100  # the kernel allows 107 characters; some clients add to it


class Settings(BaseSettings):
    """The name of a variable is the field's name in capitals."""

    model_config = SettingsConfigDict(extra="ignore", frozen=True)

    data_dir: Path = Field(Path("ehr-d3pm-data"), description="folder of the embedded database, broker and store")
    database_url: str = Field("", description="SQLAlchemy URL; empty: SQLite in DATA_DIR")
    database_connect_seconds: int = Field(5, ge=1, description="Postgres: longest wait for a connection")
    database_statement_seconds: float = Field(
        60, ge=0, description="Postgres: longest statement, and longest idle transaction; 0: what the server has set"
    )
    database_silence_seconds: int = Field(
        15, ge=3, description="Postgres: a connection over which nothing arrives for this long is given up"
    )
    redis_url: str = Field("", description="Redis or Valkey URL; empty: the embedded Valkey's socket")
    store_url: str = Field("", description="file:///folder or s3://bucket/prefix; empty: DATA_DIR/store")

    host: str = Field("127.0.0.1", description="address the API binds to; other than loopback needs API keys")
    port: int = Field(8000, ge=0, le=65535, description="port the API binds to")
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")

    otel_exporter_otlp_endpoint: str = Field(
        "", description="where traces go: an OpenTelemetry collector, by OTLP over HTTP; empty: there are none"
    )
    otel_exporter_otlp_headers: str = Field("", description="what it is sent besides, as name=value,name=value")
    otel_service_name: str = Field("ehr-d3pm", description="what this service is called there")

    max_upload_bytes: int = Field(4 * GIB, ge=1, description="largest upload, as sent")
    max_inflated_bytes: int = Field(16 * GIB, ge=1, description="largest upload after decompression")
    max_rows: int = Field(500_000_000, ge=1, description="most rows in one dataset")
    max_codes: int = Field(100_000, ge=2, description="largest vocabulary after rare codes were dropped")
    max_visits: int = Field(500, ge=1, description="longest history of a patient; later visits are left out")
    max_field_bytes: int = Field(256, ge=8, description="longest code or id, in bytes")
    max_body_bytes: int = Field(1 * MIB, ge=1024, description="largest JSON body")
    max_records: int = Field(10_000_000, ge=1, description="most synthetic records in one cohort")
    smallest_condition: int = Field(
        50, ge=0, description="cohorts wait for a custodian if fewer patients than this would satisfy what they ask for"
    )

    cap_conditions: int = Field(200, ge=0, description="distinct conditions a key without `data` may ask of a model")
    cap_small_conditions: int = Field(20, ge=0, description="of those, ones that hardly any patient satisfies")
    cap_records: int = Field(50_000_000, ge=0, description="synthetic records a key without `data` may have of a model")

    webhooks_private: bool = Field(
        False, description="webhooks may have http:// and other than public addresses; for networks of your own"
    )
    sources: str = Field(
        "", repr=False, description="where records may be fetched from: JSON, or the path of a file with it; none"
    )
    sinks: str = Field("", repr=False, description="where cohorts may be written to, in the same way; none")
    limit_queued_jobs: int = Field(1_000, ge=1, description="jobs of one owner that may wait at a time")
    limit_running_jobs: int = Field(1_000, ge=1, description="jobs of one owner that may run at a time; others wait")
    limit_queued_records: int = Field(
        100_000_000, ge=1, description="synthetic records of one owner that may be waited for at a time"
    )
    limit_stored_bytes: int = Field(
        1024 * GIB, ge=1, description="datasets, models, cohorts and waiting uploads of one owner"
    )
    job_seconds: float = Field(7 * 86_400, gt=0, description="a job that has run this long in all fails")
    turn_seconds: float = Field(
        20, ge=0, description="then a job makes way for one of another owner that waits and has had less"
    )
    failed_logins: int = Field(20, ge=1, description="requests a minute with invalid keys from one address")

    lease_seconds: float = Field(30, gt=0, description="a worker silent for this long has lost its job")
    heartbeat_seconds: float = Field(2, gt=0, description="how often a lease is renewed and the cancel flag read")
    cancel_grace_seconds: float = Field(5, ge=0, description="then a cancelled job is ended by force")
    stop_seconds: float = Field(
        20,
        ge=0,
        description="a worker told to stop has this long to keep what it has; then jobs are given back by force",
    )
    max_attempts: int = Field(
        3, ge=1, description="attempts without any progress after which a job that kills its worker fails as poison"
    )
    retry_seconds: float = Field(
        7 * 86_400,
        ge=0,
        description="how long the upload, the checkpoint or the parts of a failed job are kept for a retry",
    )
    retain_events_days: float = Field(90, ge=0, description="then progress of ended jobs is removed; 0: never")
    retain_jobs_days: float = Field(365, ge=0, description="then ended jobs of which nothing is left are; 0: never")
    retain_cohorts_days: float = Field(0, ge=0, description="then cohorts are; 0: never")
    checkpoint_seconds: float = Field(60, ge=0, description="least time between two checkpoints of a training")
    sweep_seconds: float = Field(2, gt=0, description="how often missed messages and expired leases are looked for")
    republish_seconds: float = Field(30, gt=0, description="first wait before a queued job's message is sent again")
    part_records: int = Field(16_384, ge=1, description="synthetic records in one part of a cohort, in whole chunks")

    reference_records: int = Field(200_000, ge=0, description="a new model draws so many, once, to estimate from")
    reference_seconds: float = Field(
        20, ge=0, description="then it draws no more, unless a tenth of the time that training took is longer"
    )

    schema_wait_seconds: float = Field(
        60, ge=0, description="a worker waits this long for the migrations it needs, and then ends"
    )
    worker_concurrency: int = Field(1, ge=1, description="jobs one worker runs at a time")
    worker_threads: int = Field(
        0, ge=0, description="threads of each job; 0: the cores there are, divided by WORKER_CONCURRENCY"
    )
    worker_queues: str = Field("train,generate,evaluate,ingest", description="queues a worker takes jobs from")
    stream_bytes: int = Field(
        256 * MIB,
        ge=0,
        description="of larger datasets the codes stay in the store's file (S3: a copy), and d3pm reads them in pieces",
    )
    train_processes: int = Field(
        0,
        ge=0,
        le=64,
        description="processes that share one training of d3pm, each with a GPU of its own where there are any; 0: as "
        "many as there are GPUs with the network `linformer`, one otherwise",
    )
    device: str = Field("auto", description="auto, cpu or cuda")

    @field_validator("sources")
    @classmethod
    def _sources_can_be_read(cls, text: str) -> str:
        source_places(text)
        return text

    @field_validator("sinks")
    @classmethod
    def _sinks_can_be_read(cls, text: str) -> str:
        sink_places(text)
        return text

    @cached_property
    def source_places(self) -> Places:
        """Where records may be fetched from."""
        return source_places(self.sources)

    @cached_property
    def sink_places(self) -> Places:
        """Where cohorts may be written to."""
        return sink_places(self.sinks)

    @property
    def resolved_data_dir(self) -> Path:
        return self.data_dir.expanduser().resolve()

    @property
    def embedded_socket(self) -> Path:
        """Where the embedded Valkey listens: in DATA_DIR, or elsewhere if that path is too long for a socket."""
        path = self.resolved_data_dir / "valkey.sock"
        if len(str(path)) <= LONGEST_SOCKET_PATH:
            return path
        name = hashlib.sha256(str(self.resolved_data_dir).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"ehr-d3pm-{name}" / "valkey.sock"

    @property
    def resolved_database_url(self) -> str:
        """With psycopg 3 where the URL only says postgres."""
        if self.database_url == "":
            return f"sqlite:///{self.resolved_data_dir / 'ehr-d3pm.sqlite'}"
        for scheme in ("postgres://", "postgresql://"):
            if self.database_url.startswith(scheme):
                return "postgresql+psycopg://" + self.database_url.removeprefix(scheme)
        return self.database_url

    @property
    def database_timeouts(self) -> Timeouts:
        return Timeouts(self.database_connect_seconds, self.database_statement_seconds, self.database_silence_seconds)

    @property
    def tracer(self) -> Tracer:
        """A new one, for a process."""
        return Tracer(self.otel_exporter_otlp_endpoint, self.otel_exporter_otlp_headers, self.otel_service_name)

    @property
    def queues(self) -> list[str]:
        """From which this worker takes jobs."""
        return [queue.strip() for queue in self.worker_queues.split(",")]

    @property
    def limits(self) -> Limits:
        """Of owners who have none of their own."""
        counts = (self.limit_queued_jobs, self.limit_running_jobs, self.limit_queued_records, self.limit_stored_bytes)
        return Limits(*counts)

    @property
    def resolved_redis_url(self) -> str:
        return self.redis_url if self.redis_url != "" else f"redis+socket://{self.embedded_socket}"

    @property
    def resolved_store_url(self) -> str:
        return self.store_url if self.store_url != "" else f"file://{self.resolved_data_dir / 'store'}"

    @property
    def scratch_dir(self) -> Path:
        """For what an object store's blobs become while they are read as files. Not /tmp, which may be memory."""
        return self.resolved_data_dir / "scratch"

    @property
    def is_embedded(self) -> bool:
        """Whether the broker is ours to start."""
        return self.redis_url == ""


@cache
def get_settings() -> Settings:
    """The settings of this process."""
    return Settings()
