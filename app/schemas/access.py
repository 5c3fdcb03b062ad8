"""Response bodies about keys and what was done with them."""

from typing import Any

from pydantic import Field

from app.schemas.answers import Answer, Moment


class ExposureAnswer(Answer):
    """How much one key has had of a model. A cap of null is none."""

    key: str = Field(description="the key's prefix; `local` for a service without keys")
    name: str = Field(description="what the key is for")
    requests: int
    records: int = Field(description="synthetic records asked for")
    conditions: int = Field(description="distinct conditions asked for, however they were written")
    small_conditions: int = Field(description="of those, the ones that hardly any patient satisfies")
    caps: dict[str, int | None] | None = Field(description="of records, conditions and small_conditions; yours only")
    first_at: Moment
    last_at: Moment


class Budget(Answer):
    used: int
    most: int = Field(description="beyond it a submission is a `429`")


class BudgetsAnswer(Answer):
    """What an owner has at the moment, and may have. More is there again when jobs end and things are deleted."""

    queued_jobs: Budget = Field(description="jobs that wait; without the scope `data`, those it may see")
    queued_records: Budget = Field(description="synthetic records of jobs that wait or run")
    stored_bytes: Budget = Field(description="of all that is stored; without the scope `data`, of cohorts")


class AuditAnswer(Answer):
    """One row of the audit trail. Conditions are hashes: no codes are kept here."""

    id: int
    owner: str = Field(description="empty: nobody, for example a request without a valid key")
    key_prefix: str | None
    action: str
    target: str = Field(description="the id of what it was done to, or the route that was refused")
    detail: dict[str, Any]
    created_at: Moment


class KeyAnswer(Answer):
    """A key; the secret itself is kept nowhere."""

    id: str
    prefix: str
    name: str = Field(description="what it is for")
    scopes: list[str]
    caps: dict[str, Any] | None = Field(description="of exposure, where they are other than the settings'")
    created_at: Moment
    revoked_at: Moment | None


class WithheldAnswer(Answer):
    """A cohort that may not leave, or not yet."""

    cohort_id: str
    model_id: str
    n_records: int
    why: str
    created_at: Moment


class ReleaseAnswer(Answer):
    """A withheld cohort may be downloaded from now on."""

    cohort_id: str
    reason: str
    released_at: Moment
