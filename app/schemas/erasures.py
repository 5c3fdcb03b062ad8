"""Response bodies of what is removed with a dataset."""

from pydantic import BaseModel, Field

from app.schemas.answers import Answer, Moment


class DependantsAnswer(Answer):
    """What was made from a dataset, by id."""

    models: list[str]
    cohorts: list[str]
    reports: list[str]
    unfinished_jobs: list[str] = Field(description="that work on the dataset or on something made from it")


class Remainder(BaseModel):
    """Something that an erasure leaves, and why."""

    what: str
    why: str
    rows: int | None = None


class ErasureAnswer(Answer):
    """What was removed with a dataset and everything made from it."""

    dataset_id: str
    erased_at: Moment
    removed: dict[str, list[str]] = Field(description="ids, by kind")
    cancelled_jobs: list[str]
    remains: list[Remainder]
    folders_left: int = Field(description="folders whose files are still to be removed; 0: all are gone")
