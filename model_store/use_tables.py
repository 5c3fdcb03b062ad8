"""Tables of what is used, and by whom: owners with their limits, and how jobs have fared."""

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from model_store.columns import OWNER, Base


class Owner(Base):
    """How much an owner may use at a time, and has used; a limit that is None is that of the settings."""

    __tablename__ = "owners"

    owner: Mapped[str] = mapped_column(OWNER, primary_key=True)
    weight: Mapped[float] = mapped_column(default=1.0)  # share of the workers, beside those of others
    began: Mapped[float] = mapped_column(default=0.0)  # virtual time at which its last job started
    used: Mapped[float] = mapped_column(default=0.0)  # virtual time up to which it has been served
    turn: Mapped[float | None]  # what its jobs take of virtual time, as far as is known: half of it is the last one
    queued_jobs: Mapped[int | None]
    running_jobs: Mapped[int | None]
    queued_records: Mapped[int | None] = mapped_column(BigInteger)
    stored_bytes: Mapped[int | None] = mapped_column(BigInteger)


class JobCount(Base):
    """How often something happened to jobs of a kind, ever, and how long they had run by then; for metrics. Jobs go
    after a while, these rows do not."""

    __tablename__ = "job_counts"

    kind: Mapped[str] = mapped_column(String(20), primary_key=True)
    what: Mapped[str] = mapped_column(String(20), primary_key=True)  # started, succeeded, failed, lease_lost, ...
    times: Mapped[int] = mapped_column(BigInteger, default=0)
    seconds: Mapped[float] = mapped_column(default=0.0)
